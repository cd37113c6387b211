"""What the tests of one-channel services share: a member that only writes down what its service tells it."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from antiphon.core.effects import Effect, Multicast, SetTimer
from antiphon.core.ids import Site
from antiphon.core.packing import pack
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.pdus import ORIGIN, Arc, Message, Remulticast, Report, Tag
from antiphon.protocols.dpg.services.base import Next, Placements, Service

RETURNING = ("on_message", "on_report", "on_other_pdu", "on_timer", "depart")
"""The methods of a service that return placements."""


class FakeMember:
    """Implements `services.base.MemberView`."""

    def __init__(self, site: Site, others: Sequence[Site] = ()) -> None:
        self.site = site
        self.random = Random(site)
        self.others = frozenset(others)
        self.effects: list[Effect] = []
        self.elsewhere: set[Tag] = set()
        """Tags that the order has before whatever the service released last."""
        self.pending: tuple[Message, ...] = ()
        """Own messages without a place."""
        self.heard_tags: list[tuple[Tag, bool]] = []
        self.placed_tags: list[tuple[Tag, tuple[Arc, ...]]] = []

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def is_ours(self, tag: Tag) -> bool:
        return True

    def unlocated(self) -> tuple[Message, ...]:
        return self.pending

    def is_at_origin(self) -> bool:
        return not self.heard_tags and not self.placed_tags

    def root(self) -> Tag:
        return ORIGIN

    def is_ahead(self, tag: Tag) -> bool:
        return True

    def is_behind(self, tag: Tag, latest: Tag) -> bool:
        return tag in self.elsewhere

    def has_sent(self, site: Site) -> bool:
        return True

    def lately(self, now: Nanoseconds) -> frozenset[Site]:
        return self.others

    # For the tests

    def attach_to(self, service: Service) -> None:
        """Be the service's member, and write down whatever it returns."""
        for name in RETURNING:
            setattr(service, name, partial(self._write_down, getattr(service, name)))
        service.attach(self)

    def _write_down(self, method: Callable[..., Placements], *arguments: Any, **named: Any) -> None:
        for each in method(*arguments, **named):
            if isinstance(each, Next):
                self.heard_tags.append((each.tag, each.contiguous))
            else:
                self.placed_tags.append((each.tag, tuple(each.arcs)))

    def arcs(self) -> list[Arc]:
        return [arc for _, arcs in self.placed_tags for arc in arcs]

    def take_effects(self) -> list[Effect]:
        taken, self.effects = self.effects, []
        return taken

    def multicasts(self) -> list[Multicast]:
        return [effect for effect in self.effects if isinstance(effect, Multicast)]

    def timers(self) -> list[SetTimer]:
        return [effect for effect in self.effects if isinstance(effect, SetTimer)]


def message(
    tag: Tag, *, stamp: int = 0, number: int = 0, previous: Tag = ORIGIN, incarnation: int = 0, size: int = 10
) -> Message:
    return Message(
        tag=tag,
        previous=previous,
        seen=ORIGIN,
        stamp=stamp,
        index=0,
        incarnation=incarnation,
        number=number,
        bodies=pack([bytes(size)]),
    )


def remulticast(sender: Site, told: Message) -> Remulticast:
    return Remulticast(
        sender=sender,
        tag=told.tag,
        previous=told.previous,
        seen=told.seen,
        stamp=told.stamp,
        incarnation=told.incarnation,
        number=told.number,
        bodies=told.bodies,
    )


def report(service: bytes = b"", incarnation: int = 0) -> Report:
    return Report(
        incarnation=incarnation,
        serial=0,
        clock_ns=0,
        index=0,
        digest=0,
        agreed=b"",
        links=b"",
        vertices=b"",
        arcs=b"",
        lost=b"",
        demand_ns=0,
        listening=False,
        streams={},
        service=service,
    )
