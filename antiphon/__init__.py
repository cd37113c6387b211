"""Antiphon: ordered, reliable multicast for Python. Run it, prove it, study it.

>>> import antiphon
>>> run = antiphon.simulate("sequencer", members=3, messages=30, loss=0.2, seed=1)
>>> run.metrics["deliveries"], run.violations
(90, [])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon import sync as sync
    from antiphon import testing as testing
    from antiphon.core.errors import AntiphonError as AntiphonError
    from antiphon.core.errors import InputError as InputError
    from antiphon.core.errors import MissingRequirementError as MissingRequirementError
    from antiphon.core.errors import OutputError as OutputError
    from antiphon.core.errors import UsageError as UsageError
    from antiphon.live.boards import LeftError as LeftError
    from antiphon.live.boards import MissedError as MissedError
    from antiphon.live.boards import NameTakenError as NameTakenError
    from antiphon.live.events import Appeared as Appeared
    from antiphon.live.events import CaughtUp as CaughtUp
    from antiphon.live.events import CutOff as CutOff
    from antiphon.live.events import Disagreed as Disagreed
    from antiphon.live.events import HistoryFailed as HistoryFailed
    from antiphon.live.events import LeftBehind as LeftBehind
    from antiphon.live.events import Missed as Missed
    from antiphon.live.events import Refused as Refused
    from antiphon.live.events import Restarted as Restarted
    from antiphon.live.events import Unavailable as Unavailable
    from antiphon.live.events import Unread as Unread
    from antiphon.live.events import Vanished as Vanished
    from antiphon.live.group import Group as Group
    from antiphon.live.joining import join as join
    from antiphon.live.limits import Limits as Limits
    from antiphon.live.messages import Batch as Batch
    from antiphon.live.messages import Message as Message
    from antiphon.live.messages import Presence as Presence
    from antiphon.live.node import Membership as Membership
    from antiphon.live.node import Node as Node
    from antiphon.live.node import node as node
    from antiphon.spark.single import simulate as simulate

__version__ = "0.1.0"
__all__ = [
    "AntiphonError",
    "Appeared",
    "Batch",
    "CaughtUp",
    "CutOff",
    "Disagreed",
    "Group",
    "HistoryFailed",
    "InputError",
    "LeftBehind",
    "LeftError",
    "Limits",
    "Membership",
    "Message",
    "Missed",
    "MissedError",
    "MissingRequirementError",
    "NameTakenError",
    "Node",
    "OutputError",
    "Presence",
    "Refused",
    "Restarted",
    "Unavailable",
    "Unread",
    "UsageError",
    "Vanished",
    "__version__",
    "join",
    "node",
    "simulate",
    "sync",
    "testing",
]

_HOMES = {
    "AntiphonError": "antiphon.core.errors",
    "InputError": "antiphon.core.errors",
    "MissingRequirementError": "antiphon.core.errors",
    "OutputError": "antiphon.core.errors",
    "UsageError": "antiphon.core.errors",
    "Appeared": "antiphon.live.events",
    "CaughtUp": "antiphon.live.events",
    "CutOff": "antiphon.live.events",
    "Disagreed": "antiphon.live.events",
    "HistoryFailed": "antiphon.live.events",
    "LeftBehind": "antiphon.live.events",
    "Missed": "antiphon.live.events",
    "Refused": "antiphon.live.events",
    "Restarted": "antiphon.live.events",
    "Unavailable": "antiphon.live.events",
    "Unread": "antiphon.live.events",
    "Vanished": "antiphon.live.events",
    "Batch": "antiphon.live.messages",
    "Group": "antiphon.live.group",
    "LeftError": "antiphon.live.boards",
    "Limits": "antiphon.live.limits",
    "Message": "antiphon.live.messages",
    "MissedError": "antiphon.live.boards",
    "NameTakenError": "antiphon.live.boards",
    "Membership": "antiphon.live.node",
    "Node": "antiphon.live.node",
    "Presence": "antiphon.live.messages",
    "node": "antiphon.live.node",
    "join": "antiphon.live.joining",
    "simulate": "antiphon.spark.single",
}


_MODULES = ("sync", "testing")


def __getattr__(name: str) -> Any:
    """Load the library's names when they are used: importing the package stays quick."""
    if name in _MODULES:
        return import_module(f"antiphon.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
