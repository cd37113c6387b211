"""Spells of presence: when this member takes part, and what it tells the application and the trace."""

from antiphon.core.effects import Absent, Arrived, Deliver, Discard, Present, Stable
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.schedule import StatusSchedule


class Presence:
    """Begins and ends spells of presence, so that none has a hole in it.

    What happens while this member does not take part is withheld until it does.
    """

    def __init__(self, context: Context, schedule: StatusSchedule) -> None:
        self._context = context
        self._schedule = schedule
        self.taking_part = False
        self.spell = 0
        """Counts the spells of presence, from 0 while nothing was ever missed."""
        self.missed = False
        """Whether something has been missed since this member was last present."""
        self.was_absent = False
        """Whether this member has ever been absent: only a member that never was must have everything."""
        self._is_absent = False
        """Whether the trace says that this member is absent."""
        self._withheld: list[Arrived | Deliver | Stable | Discard] = []
        self._withheld_bytes = 0

    def start(self, *, returning: bool) -> None:
        """Begin as a later incarnation; the log of an earlier one ends in an absence."""
        self.spell = int(returning)
        self._is_absent = self.was_absent = returning

    def renew_spell(self) -> None:
        """Count a new spell: something was missed, or this member was away."""
        self.spell += 1

    def be_absent(self) -> None:
        self.taking_part = False
        if not self._is_absent:
            self._is_absent = self.was_absent = True
            self._context.emit(Absent())

    def be_present(self) -> None:
        """Take part, and tell what was withheld."""
        if self.missed:
            self.be_absent()
        if self._context.incarnation or self._is_absent:
            self._context.emit(Present())
        self.taking_part = True
        self._is_absent = self.missed = False
        self._context.effects += self._withheld
        self._withheld = []
        self._withheld_bytes = 0

    def note_gap(self, now: Nanoseconds, site: Site) -> None:
        """Something of a site is lost for good: one spell ends before it, the next begins behind it."""
        if not self.taking_part:
            self.missed = True
            self._withheld = [effect for effect in self._withheld if effect.sender != site]
            return
        self.was_absent = True
        self.spell += 1
        self._context.effects += (Absent(), Present())
        self._schedule.soon(now)

    def tell(self, effect: Arrived | Deliver | Stable | Discard) -> None:
        """Tell the application and the trace, at once or when this member takes part."""
        if self.taking_part:
            self._context.emit(effect)
        else:
            self._withheld.append(effect)
            if type(effect) is Deliver:
                self._withheld_bytes += getattr(effect.bodies, "weight", 0)

    def has_room(self, most_bytes: int, most_batches: int) -> bool:
        """Whether more may be withheld."""
        return self._withheld_bytes <= most_bytes and len(self._withheld) < most_batches
