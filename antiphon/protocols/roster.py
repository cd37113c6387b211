"""The members of a group that never changes, and the checks of what applications and peers hand in.

On the wire a member is its place in the list that all members were given, and a vector has one number for
each place. PDUs of peers are checked here first: for places that do not exist, and for numbers that are
negative or leave no room for larger ones.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit
from antiphon.core.packing import Packed
from antiphon.core.wire import MAXIMUM_BODY_BYTES
from antiphon.protocols.admission import pack_within

LARGEST: Final = 1 << 62
"""Numbers of peers are less than this, so that there is always room for larger ones."""
VECTOR_ENTRY_BYTES: Final = 9
"""The most that an entry of a vector takes on the wire."""
OTHER_FIELDS_BYTES: Final = 2048
"""Room for names, destinations and numbers in a PDU."""

Places: TypeAlias = tuple[int, ...] | None
"""Destinations as they travel: members by their place; None means all."""


class Handed(NamedTuple):
    """What an application has handed in, and its destinations."""

    batch: Packed
    places: Places
    destinations: frozenset[Site] | None


class Roster:
    """The members of a group, as one of them sees it."""

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
        """The place of another member; None for this member and for strangers."""
        return None if sender == self.site else self._places.get(sender)

    def sites(self, places: Places) -> frozenset[Site] | None:
        return None if places is None else frozenset(self.members[place] for place in places)

    def includes(self, places: Places, place: int | None = None) -> bool:
        """Whether a member, this one unless another is named, is among the destinations."""
        return places is None or (self.place if place is None else place) in places

    # Fields of peers' PDUs

    def are_places(self, places: Places) -> bool:
        if places is None:
            return True
        return 0 < len(places) == len(set(places)) and all(0 <= place < self.size for place in places)

    def is_vector(self, numbers: Sequence[int]) -> bool:
        return len(numbers) == self.size and are_numbers(numbers)

    # Admissions

    @property
    def vector_bytes(self) -> int:
        """The most that a vector takes on the wire."""
        return self.size * VECTOR_ENTRY_BYTES

    def take(self, event: Admit, order: str, fields_bytes: int) -> Handed:
        """The batch and its destinations; misuse raises in the name of the `order`.

        `fields_bytes` is the size of the fields of its PDU that grow with the group.
        """
        if event.group is not None:
            raise UsageError(f"{order} knows one group only.")
        wanted = event.destinations
        if wanted is not None and not (wanted and wanted <= self._places.keys()):
            raise UsageError(
                "A message goes to at least one member, and to members only.",
                hint=f"The members are: {', '.join(self.members)}.",
            )
        batch = pack_within(event.bodies, MAXIMUM_BODY_BYTES - OTHER_FIELDS_BYTES - fields_bytes)
        places = None if wanted is None else tuple(sorted(map(self._places.__getitem__, wanted)))
        return Handed(batch, places, wanted)


def are_numbers(numbers: Iterable[int]) -> bool:
    return all(0 <= number < LARGEST for number in numbers)


def raise_to(vector: list[int], other: Sequence[int]) -> bool:
    """Raise each entry to the other's; whether any rose."""
    rose = False
    for place, number in enumerate(other):
        if number > vector[place]:
            vector[place] = number
            rose = True
    return rose
