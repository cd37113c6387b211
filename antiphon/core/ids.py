"""Names for sites, groups and messages."""

from typing import NamedTuple, TypeAlias

Site: TypeAlias = str
Group: TypeAlias = str


class MessageId(NamedTuple):
    """A message's id: its sender and its number among that sender's messages, from 0."""

    sender: Site
    number: int

    def __str__(self) -> str:
        return f"{self.sender}:{self.number}"


def site_names(count: int) -> list[Site]:
    """The simulator's names for `count` sites, all of one width so that they sort as they count.

    >>> site_names(3)
    ['s0', 's1', 's2']
    """
    width = len(str(max(count - 1, 0)))
    return [f"s{index:0{width}d}" for index in range(count)]
