"""Who is in a group whose members never change, and what may be handed in there to be sent to some of them.

On the wire a member is its place in the list that all of them were given, and a vector has one number for
each place. Whatever a peer tells is looked at here first: places that nobody has, numbers below 0 or so large
that nothing could be counted on from there.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit
from antiphon.core.packing import Packed, pack
from antiphon.core.wire import MAXIMUM_BODY_BYTES

LARGEST: Final = 1 << 62
"""No number that a peer tells may be as large: there is always room to count on, here and on the wire."""
VECTOR_ENTRY_BYTES: Final = 9
"""What a vector's entry takes on the wire at most."""
OTHER_FIELDS_BYTES: Final = 2048
"""What is left for names, destinations and numbers in a PDU."""

Places: TypeAlias = tuple[int, ...] | None
"""Destinations as they travel: members by their place; None means all."""


class Handed(NamedTuple):
    """What an application has handed in, and to whom it goes."""

    batch: Packed
    places: Places
    destinations: frozenset[Site] | None


class Roster:
    """The members of a group, of whom one is asking."""

    def __init__(self, site: Site, members: Sequence[Site]) -> None:
        if site not in members or len(set(members)) != len(members):
            raise UsageError(f"The site {site} must be one of the members, which must differ.")
        self.site: Final = site
        self.members: Final = tuple(members)
        self.size: Final = len(members)
        self.place: Final = self.members.index(site)
        self.others: Final = tuple(member for member in members if member != site)
        self.everyone: Final = tuple(range(self.size))
        self._places: Final = {member: place for place, member in enumerate(members)}

    def place_of(self, sender: Site) -> int | None:
        """Where another member stands; None for oneself and for strangers."""
        return None if sender == self.site else self._places.get(sender)

    def sites(self, places: Places) -> frozenset[Site] | None:
        return None if places is None else frozenset(self.members[place] for place in places)

    def includes(self, places: Places, place: int | None = None) -> bool:
        """Whether a member, oneself unless another is named, is among the destinations."""
        return places is None or (self.place if place is None else place) in places

    # What peers tell

    def are_places(self, places: Places) -> bool:
        if places is None:
            return True
        return 0 < len(places) == len(set(places)) and all(0 <= place < self.size for place in places)

    def is_vector(self, numbers: Sequence[int]) -> bool:
        return len(numbers) == self.size and are_numbers(numbers)

    # What applications hand in

    @property
    def vector_bytes(self) -> int:
        """What a vector takes on the wire at most."""
        return self.size * VECTOR_ENTRY_BYTES

    def take(self, event: Admit, order: str, fields_bytes: int) -> Handed:
        """A batch that makes sense; misuse is told in the name of the `order`.

        Its PDU has fields beside it whose size depends on the group's, and which take so many bytes.
        """
        if not event.bodies:
            raise UsageError("There is nothing to multicast: no body was handed in.")
        if event.group is not None:
            raise UsageError(f"{order} knows one group only.")
        wanted = event.destinations
        if wanted is not None and not (wanted and wanted <= self._places.keys()):
            raise UsageError(
                "A message goes to at least one member, and to members only.",
                hint=f"The members are: {', '.join(self.members)}.",
            )
        batch = pack(event.bodies)
        largest_bytes = MAXIMUM_BODY_BYTES - OTHER_FIELDS_BYTES - fields_bytes
        if len(batch.data) > largest_bytes:
            raise UsageError(
                f"A batch of {len(batch.data)} bytes does not fit a PDU.",
                hint=f"At most {largest_bytes} bytes do, lengths included; hand in less at once.",
            )
        places = None if wanted is None else tuple(sorted(map(self._places.__getitem__, wanted)))
        return Handed(batch, places, wanted)


def are_numbers(numbers: Iterable[int]) -> bool:
    return all(0 <= number < LARGEST for number in numbers)


def raise_to(vector: list[int], other: Sequence[int]) -> bool:
    """Raise each entry to the other's; tells whether any rose."""
    rose = False
    for place, number in enumerate(other):
        if number > vector[place]:
            vector[place] = number
            rose = True
    return rose
