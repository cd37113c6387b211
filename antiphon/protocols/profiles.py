"""The systems of Guo's chapters 2 and 4 as profiles: each a name for an order and its options.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 2.1 and 4.2. docs/profiles.md says of
each what the text tells, and what is assumed where the text is too short to build from. A profile is data: it
has no code of its own, and a group may turn any of its options.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from antiphon.core.knobs import require_known
from antiphon.core.time import MILLISECOND_NS

Option: TypeAlias = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One system."""

    name: str
    summary: str
    order: str
    """The order, by the name that it has in the simulator."""
    options: Mapping[str, Option]
    """The options of that order, as `antiphon.join` and `antiphon simulate` take them."""


def _profile(name: str, summary: str, order: str, **options: Option) -> Profile:
    return Profile(name=name, summary=summary, order=order, options=MappingProxyType(options))


PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        _profile(
            "amoeba",
            "a sequencer that repeats what members ask for; a member has one message under way",
            "sequencer",
            window=1,
        ),
        _profile(
            "lbrm",
            "members ask log servers, the heads of their sub-groups; pauses between heartbeats grow",
            "fifo",
            repair="parent",
            stability="s-coordp",
            subgroup=8,
            heads=True,
            acknowledgements="late",
            announce_most_ns=32 * 10 * MILLISECOND_NS,
        ),
        _profile(
            "lgmp",
            "members ask their local group first, then the sender; heads gather what their groups hold",
            "fifo",
            repair="local",
            stability="s-coordp",
            subgroup=8,
            heads=True,
            acknowledgements="late",
        ),
        _profile(
            "mftp",
            "blocks and passes: the sender gathers requests at the end of a block, then repeats all at once",
            "fifo",
            repair="passes",
            stability="sender",
            acknowledgements="late",
            block_bytes=16 * 1024,
            most_bytes_s=12_500_000.0,
        ),
        _profile(
            "napp",
            "multicast requests, which suppress one another; the sender answers, and polls for receipts",
            "fifo",
            repair="request-all",
            stability="sender",
            acknowledgements="late",
        ),
        _profile(
            "pa",
            "a sequencer to which members acknowledge each message, and which repeats after a time-out",
            "sequencer",
            receipts=True,
        ),
        _profile(
            "rmtp",
            "requests and acknowledgements climb a tree of designated receivers, each of which answers",
            "fifo",
            repair="parent",
            stability="s-coordp",
            acknowledgements="late",
        ),
        _profile(
            "srm",
            "requests and answers by any member, by distance; session messages at 5% of the data",
            "fifo",
            repair="distance",
            stability="session",
            session_share=0.05,
            acknowledgements="late",
        ),
        _profile(
            "tandem",
            "the same in lock-step: one message at a time in the whole group",
            "sequencer",
            receipts=True,
            window=1,
            order_window=1,
        ),
        _profile(
            "totem",
            "a token goes round; its holder multicasts, and the token numbers and acknowledges",
            "totem",
        ),
        _profile(
            "train",
            "a train goes round with the messages; its second visit tells that they are stable",
            "totem-agreed",
            carries=True,
        ),
        _profile(
            "xtp",
            "requests to the sender, which asks all for what they hold and keeps a rate",
            "fifo",
            repair="request",
            stability="sender",
            acknowledgements="late",
            most_bytes_s=12_500_000.0,
        ),
    )
}


def find_profile(name: str) -> Profile:
    """A profile by its name; an unknown name raises, with the names that exist."""
    require_known(name, PROFILES, f"There is no profile '{name}'.")
    return PROFILES[name]
