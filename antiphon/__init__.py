"""Antiphon: ordered, reliable multicast for Python. Run it, prove it, study it.

>>> import antiphon
>>> run = antiphon.simulate("sequencer", members=3, messages=30, loss=0.2, seed=1)
>>> run.metrics["deliveries"], run.violations
(90, [])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon import audit as audit
    from antiphon import sync as sync
    from antiphon import testing as testing
    from antiphon.check.checkers import check_all as check_all
    from antiphon.check.checkers import check_trace as check_trace
    from antiphon.check.verdict import Violation as Violation
    from antiphon.core.errors import AntiphonError as AntiphonError
    from antiphon.core.errors import InputError as InputError
    from antiphon.core.errors import MissingRequirementError as MissingRequirementError
    from antiphon.core.errors import OutputError as OutputError
    from antiphon.core.errors import UsageError as UsageError
    from antiphon.live.errors import LeftError as LeftError
    from antiphon.live.errors import MissedError as MissedError
    from antiphon.live.errors import NameTakenError as NameTakenError
    from antiphon.live.events import Appeared as Appeared
    from antiphon.live.events import CaughtUp as CaughtUp
    from antiphon.live.events import CutOff as CutOff
    from antiphon.live.events import Disagreed as Disagreed
    from antiphon.live.events import Forked as Forked
    from antiphon.live.events import HistoryFailed as HistoryFailed
    from antiphon.live.events import LeftBehind as LeftBehind
    from antiphon.live.events import Missed as Missed
    from antiphon.live.events import Refused as Refused
    from antiphon.live.events import Restarted as Restarted
    from antiphon.live.events import Resumed as Resumed
    from antiphon.live.events import Unavailable as Unavailable
    from antiphon.live.events import Unread as Unread
    from antiphon.live.events import Vanished as Vanished
    from antiphon.live.group import Group as Group
    from antiphon.live.joining import join as join
    from antiphon.live.keys import KeyRing as KeyRing
    from antiphon.live.limits import Limits as Limits
    from antiphon.live.messages import Batch as Batch
    from antiphon.live.messages import Message as Message
    from antiphon.live.messages import Presence as Presence
    from antiphon.live.metrics import serve_metrics as serve_metrics
    from antiphon.live.networks import Loopback as Loopback
    from antiphon.live.networks import Multicast as Multicast
    from antiphon.live.networks import Network as Network
    from antiphon.live.networks import Peers as Peers
    from antiphon.live.node import Membership as Membership
    from antiphon.live.node import Node as Node
    from antiphon.live.node import node as node
    from antiphon.live.orders import Causal as Causal
    from antiphon.live.orders import Fifo as Fifo
    from antiphon.live.orders import Order as Order
    from antiphon.live.orders import Sequencer as Sequencer
    from antiphon.live.orders import Total as Total
    from antiphon.live.orders import TotalAcross as TotalAcross
    from antiphon.live.rows import StreamRows as StreamRows
    from antiphon.protocols.sco.levels import Level as Level
    from antiphon.replicated.errors import CutOffError as CutOffError
    from antiphon.replicated.errors import RemovedError as RemovedError
    from antiphon.replicated.errors import ResultLostError as ResultLostError
    from antiphon.replicated.events import Began as Began
    from antiphon.replicated.events import LeaderChanged as LeaderChanged
    from antiphon.replicated.events import MemberAdded as MemberAdded
    from antiphon.replicated.events import MemberDeparted as MemberDeparted
    from antiphon.replicated.events import MemberRemoved as MemberRemoved
    from antiphon.replicated.events import Merged as Merged
    from antiphon.replicated.events import MergeFailed as MergeFailed
    from antiphon.replicated.events import Parted as Parted
    from antiphon.replicated.events import Restored as Restored
    from antiphon.replicated.events import StoreFailed as StoreFailed
    from antiphon.replicated.events import StoreRecovered as StoreRecovered
    from antiphon.replicated.events import Transferred as Transferred
    from antiphon.replicated.objects import Barrier as Barrier
    from antiphon.replicated.objects import Change as Change
    from antiphon.replicated.objects import Counter as Counter
    from antiphon.replicated.objects import Item as Item
    from antiphon.replicated.objects import Leader as Leader
    from antiphon.replicated.objects import Leadership as Leadership
    from antiphon.replicated.objects import Lock as Lock
    from antiphon.replicated.objects import LockLostError as LockLostError
    from antiphon.replicated.objects import Map as Map
    from antiphon.replicated.objects import Objects as Objects
    from antiphon.replicated.objects import Queue as Queue
    from antiphon.replicated.objects import Semaphore as Semaphore
    from antiphon.replicated.objects import Set as Set
    from antiphon.replicated.replica import Replicated as Replicated
    from antiphon.replicated.replica import replicate as replicate
    from antiphon.simulation import SimulatedRun as SimulatedRun
    from antiphon.simulation import simulate as simulate
    from antiphon.spark.follow import Follower as Follower
    from antiphon.spark.follow import follow as follow
    from antiphon.spark.frames import Audit as Audit
    from antiphon.spark.stats import Stats as Stats
    from antiphon.spark.stats import stats as stats
    from antiphon.trace.files import read_trace as read_trace
    from antiphon.trace.files import write_trace as write_trace
    from antiphon.trace.levels import read_levels as read_levels
    from antiphon.trace.recorder import MemoryRecorder as MemoryRecorder
    from antiphon.trace.schema import Run as Run

__version__ = "0.1.0"
__all__ = [
    "AntiphonError",
    "Appeared",
    "Audit",
    "Barrier",
    "Batch",
    "Began",
    "CaughtUp",
    "Causal",
    "Change",
    "Counter",
    "CutOff",
    "CutOffError",
    "Disagreed",
    "Fifo",
    "Follower",
    "Forked",
    "Group",
    "HistoryFailed",
    "InputError",
    "Item",
    "KeyRing",
    "Leader",
    "LeaderChanged",
    "Leadership",
    "LeftBehind",
    "LeftError",
    "Level",
    "Limits",
    "Lock",
    "LockLostError",
    "Loopback",
    "Map",
    "MemberAdded",
    "MemberDeparted",
    "MemberRemoved",
    "Membership",
    "MemoryRecorder",
    "MergeFailed",
    "Merged",
    "Message",
    "Missed",
    "MissedError",
    "MissingRequirementError",
    "Multicast",
    "NameTakenError",
    "Network",
    "Node",
    "Objects",
    "Order",
    "OutputError",
    "Parted",
    "Peers",
    "Presence",
    "Queue",
    "Refused",
    "RemovedError",
    "Replicated",
    "Restarted",
    "Restored",
    "ResultLostError",
    "Resumed",
    "Run",
    "Semaphore",
    "Sequencer",
    "Set",
    "SimulatedRun",
    "Stats",
    "StoreFailed",
    "StoreRecovered",
    "StreamRows",
    "Total",
    "TotalAcross",
    "Transferred",
    "Unavailable",
    "Unread",
    "UsageError",
    "Vanished",
    "Violation",
    "__version__",
    "audit",
    "check_all",
    "check_trace",
    "follow",
    "join",
    "node",
    "read_levels",
    "read_trace",
    "replicate",
    "serve_metrics",
    "simulate",
    "stats",
    "sync",
    "testing",
    "write_trace",
]

_MODULES = ("audit", "sync", "testing")
_NAMES = {
    "antiphon.check.checkers": ("check_all", "check_trace"),
    "antiphon.check.verdict": ("Violation",),
    "antiphon.core.errors": (
        "AntiphonError",
        "InputError",
        "MissingRequirementError",
        "OutputError",
        "UsageError",
    ),
    "antiphon.live.errors": ("LeftError", "MissedError", "NameTakenError"),
    "antiphon.live.events": (
        "Appeared",
        "CaughtUp",
        "CutOff",
        "Disagreed",
        "Forked",
        "HistoryFailed",
        "LeftBehind",
        "Missed",
        "Refused",
        "Restarted",
        "Resumed",
        "Unavailable",
        "Unread",
        "Vanished",
    ),
    "antiphon.live.group": ("Group",),
    "antiphon.live.joining": ("join",),
    "antiphon.live.keys": ("KeyRing",),
    "antiphon.live.limits": ("Limits",),
    "antiphon.live.messages": ("Batch", "Message", "Presence"),
    "antiphon.live.networks": ("Loopback", "Multicast", "Network", "Peers"),
    "antiphon.live.node": ("Membership", "Node", "node"),
    "antiphon.live.rows": ("StreamRows",),
    "antiphon.live.orders": ("Causal", "Fifo", "Order", "Sequencer", "Total", "TotalAcross"),
    "antiphon.replicated.errors": ("CutOffError", "RemovedError", "ResultLostError"),
    "antiphon.replicated.events": (
        "Began",
        "LeaderChanged",
        "MemberAdded",
        "MemberDeparted",
        "MemberRemoved",
        "MergeFailed",
        "Merged",
        "Parted",
        "Restored",
        "StoreFailed",
        "StoreRecovered",
        "Transferred",
    ),
    "antiphon.replicated.objects": (
        "Barrier",
        "Change",
        "Counter",
        "Item",
        "Leader",
        "Leadership",
        "Lock",
        "LockLostError",
        "Map",
        "Objects",
        "Queue",
        "Semaphore",
        "Set",
    ),
    "antiphon.replicated.replica": ("Replicated", "replicate"),
    "antiphon.protocols.sco.levels": ("Level",),
    "antiphon.simulation": ("SimulatedRun", "simulate"),
    "antiphon.live.metrics": ("serve_metrics",),
    "antiphon.spark.follow": ("Follower", "follow"),
    "antiphon.spark.frames": ("Audit",),
    "antiphon.spark.stats": ("Stats", "stats"),
    "antiphon.trace.recorder": ("MemoryRecorder",),
    "antiphon.trace.schema": ("Run",),
    "antiphon.trace.files": ("read_trace", "write_trace"),
    "antiphon.trace.levels": ("read_levels",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load the library's names when they are used: importing the package stays quick."""
    if name in _MODULES:
        return import_module(f"antiphon.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
