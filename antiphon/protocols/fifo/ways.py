"""The ways to repair losses, as data: which members are asked, which answer, and where the answer goes."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Asked = Literal["nobody", "sender", "holder", "all", "tree", "group"]
"""Which members are asked: the sender; by turns the sender and another member that holds it; all members; the
members above it in the logical tree, then the sender; its local group, then by turns the sender."""
Given = Literal["asker", "all", "group", "pass"]
"""Where an answer goes: the asker; all members; the asker's local group; all, gathered into one pass."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way."""

    asks: Asked
    gives: Given
    others_keep: bool = False
    """Whether receivers keep copies, and answer for one another."""
    waits: bool = False
    """Whether an answer waits for a random time, so that the first one suppresses the others."""
    by_distance: bool = False
    """Whether requests and answers wait for a time in proportion to the distance."""
    at_end: bool = False
    """Whether a member asks only when the sender says how far its messages go."""

    @property
    def in_public(self) -> bool:
        """Whether members hear the requests of others, and hold back their own."""
        return self.asks in ("all", "group")


WAYS: Final[Mapping[str, Way]] = MappingProxyType(
    {
        "acknowledge": Way(asks="nobody", gives="all"),
        "request": Way(asks="sender", gives="all"),
        "request-all": Way(asks="all", gives="all"),
        "any": Way(asks="all", gives="all", others_keep=True, waits=True),
        "hybrid": Way(asks="holder", gives="asker", others_keep=True),
        "distance": Way(asks="all", gives="all", others_keep=True, waits=True, by_distance=True),
        "parent": Way(asks="tree", gives="asker", others_keep=True),
        "local": Way(asks="group", gives="group", others_keep=True, waits=True),
        "passes": Way(asks="sender", gives="pass", at_end=True),
    }
)
"""Every way, by its name."""
