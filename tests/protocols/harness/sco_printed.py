"""The procedure of Tachikawa and Takizawa as a literal twin, with each fault of the printed one as a switch.

Written to be read beside the paper: vectors are lists, messages are kept for ever, groups are fixed, and a
batch is one message. Without faults it is the corrected procedure, and agrees with the product.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from antiphon.core.effects import Admitted, Arrived, Deliver, Effect, Multicast, Rejected, Send, SetTimer
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Input, Received, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.protocols.sco import ScoConfiguration

FAULTS = {
    "S1": "CSN_j := p.sqn + 1 goes back",
    "S2": "a concurrent top moves although another top precedes it",
    "S3": "AL_ij := p.sqn",
    "S4": "control messages carry only acks",
    "S5": "control messages only if ACC is on, and ACC leaves out the sender",
    "S6": "nothing moves while some receipt queue is empty",
    "S7": "a retransmission has the csn of the time it is sent again",
    "S8": "minAL over all processes",
    "S9": "messages behind a filled gap stay there",
    "S10 LSQ": "LSN_j := LSQ_j + 1, of an LSQ that nothing sets",
    "S10 RRQ": "what comes is put into RRQ_i, the queue for own messages",
}


@dataclass(frozen=True)
class Data:
    src: int
    sqn: int
    lsn: tuple[int, ...]
    dst: frozenset[int]
    csn: tuple[int, ...]
    ack: tuple[int, ...]


@dataclass(frozen=True)
class Control:
    sqn: int
    lsn: int
    ack: tuple[int, ...]


@dataclass(frozen=True)
class Ask:
    lsns: tuple[int, ...]


def printed(*faults: str) -> Callable[..., "Printed"]:
    """Builds members that have these faults."""
    return partial(Printed, faults=frozenset(faults))


class Printed:
    """One process, E_i."""

    def __init__(
        self,
        site: Site,
        members: tuple[Site, ...],
        configuration: ScoConfiguration,
        random: Random,
        faults: frozenset[str] = frozenset(),
    ) -> None:
        assert faults <= FAULTS.keys()
        n = len(members)
        self.faults = faults
        self.members, self.knobs, self.random = members, configuration, random
        self.i = i = members.index(site)
        self.others = [j for j in range(n) if j != i]
        self.SQN, self.LSN, self.LRN, self.CSN = 0, [0] * n, [0] * n, [0] * n
        self.AL = [[0] * n for _ in range(n)]
        self.F, self.NEED = [0] * n, [-1] * n
        self.OOO: list[dict[int, Data]] = [{} for _ in range(n)]
        self.RRQ: list[deque[Data]] = [deque() for _ in range(n)]
        self.CRQ: deque[Data] = deque()
        self.sent: list[Data] = []
        self.spoken: set[int] = set()
        self.ACC: set[int] = set()
        self.effects: list[Effect] = []

    def handle(self, _now: int, event: Input) -> list[Effect]:
        match event:
            case Start():
                self.effects += (SetTimer("control", self.random.randint(1, self.knobs.control_ns)),)
                self.effects += (SetTimer("repair", self.knobs.repair_ns),)
            case Admit(destinations=destinations):
                assert destinations is not None
                self.send(frozenset(map(self.members.index, destinations)))
            case Received(sender=sender, pdu=pdu):
                self.receive(self.members.index(sender), pdu)
            case TimerFired(name="control"):
                self.control()
            case TimerFired(name="repair"):
                self.repair()
        effects, self.effects = self.effects, []
        return effects

    # Transmission

    def send(self, dst: frozenset[int]) -> None:
        if self.low() + self.knobs.window <= self.SQN:
            self.effects.append(Rejected("The flow condition does not hold."))
            return
        p = Data(self.i, self.SQN, tuple(self.LSN), dst, tuple(self.CSN), tuple(self.AL[self.i]))
        self.SQN += 1
        for j in dst:
            self.LSN[j] = 1 if "S10 LSQ" in self.faults else self.LSN[j] + 1
        self.sent.append(p)
        self.spoken |= dst
        self.ACC -= dst
        names = tuple(self.members[j] for j in sorted(dst))
        self.effects += (Admitted(p.sqn, 1, 1, frozenset(names)), Multicast(p, names))  # type: ignore[arg-type]

    def low(self) -> int:
        if "S8" in self.faults:
            return min(self.AL[h][self.i] for h in self.others)
        open_ = [p.sqn for p in self.sent if any(self.AL[h][self.i] <= p.sqn for h in p.dst)]
        return min(open_, default=self.SQN)

    def control(self) -> None:
        to = [h for h in self.others if h not in self.spoken]
        if "S5" in self.faults:
            to = [h for h in self.others if h in self.ACC]
        for h in to:
            sqn, lsn = (0, 0) if "S4" in self.faults else (self.SQN, self.LSN[h])
            pdu: Any = Control(sqn, lsn, tuple(self.AL[self.i]))
            self.effects.append(Send(self.members[h], pdu))
        self.ACC.clear()
        self.spoken.clear()
        self.effects.append(SetTimer("control", self.knobs.control_ns))

    def repair(self) -> None:
        for j in self.others:
            end = max(self.NEED[j], *self.OOO[j], -1)
            missing = tuple(lsn for lsn in range(self.LRN[j], end + 1) if lsn not in self.OOO[j])
            if missing:
                pdu: Any = Ask(missing)
                self.effects.append(Send(self.members[j], pdu))
        self.effects.append(SetTimer("repair", self.knobs.repair_ns))

    # Acceptance

    def receive(self, j: int, pdu: Any) -> None:
        if isinstance(pdu, Ask):
            self.send_again(j, pdu)
        elif isinstance(pdu, Control):
            self.raise_acks(j, pdu.ack)
            if pdu.lsn <= self.LRN[j]:
                self.F[j] = max(self.F[j], pdu.sqn)
            else:
                self.NEED[j] = max(self.NEED[j], pdu.lsn - 1)
        elif pdu.lsn[self.i] >= self.LRN[j]:
            self.OOO[j][pdu.lsn[self.i]] = pdu
            while self.LRN[j] in self.OOO[j]:
                self.accept(j, self.OOO[j].pop(self.LRN[j]))
                if "S9" in self.faults:
                    break
        self.order()

    def send_again(self, j: int, ask: Ask) -> None:
        for p in self.sent:
            if j in p.dst and p.lsn[j] in ask.lsns:
                csn = tuple(self.CSN) if "S7" in self.faults else p.csn
                pdu: Any = Data(p.src, p.sqn, p.lsn, p.dst, csn, p.ack)
                self.effects.append(Send(self.members[j], pdu))

    def accept(self, j: int, p: Data) -> None:
        self.LRN[j] += 1
        self.raise_acks(j, p.ack)
        self.CSN[j] = p.sqn + 1 if "S1" in self.faults else max(self.CSN[j], p.sqn + 1)
        for h in self.others:
            if h != j:
                self.CSN[h] = max(self.CSN[h], p.csn[h])
        self.F[j] = max(self.F[j], p.sqn + 1)
        self.ACC |= p.dst
        self.RRQ[self.i if "S10 RRQ" in self.faults else j].append(p)
        self.effects.append(Arrived(self.members[j], p.sqn))

    def raise_acks(self, j: int, ack: tuple[int, ...]) -> None:
        self.AL[j] = [max(one, other) for one, other in zip(self.AL[j], ack, strict=True)]

    # Causal order

    def order(self) -> None:
        while p := self.movable():
            self.move(p)
            if "S2" in self.faults:
                for j in self.others:
                    if self.RRQ[j] and concurrent(p, self.RRQ[j][0]):
                        self.move(self.RRQ[j][0])
        while self.CRQ and self.is_fully_accepted(self.CRQ[0]):
            p = self.CRQ.popleft()
            self.effects.append(Deliver(self.members[p.src], p.sqn, pack([b"x"])))

    def movable(self) -> Data | None:
        """The top of a receipt queue that nothing precedes which has come or can come."""
        if "S6" in self.faults and any(not self.RRQ[j] for j in self.others):
            return None
        for queue in self.RRQ:
            if queue and self.is_minimal(queue[0]):
                return queue[0]
        return None

    def is_minimal(self, p: Data) -> bool:
        for h in self.others:
            if h != p.src:
                if p.csn[h] > self.F[h] and "S6" not in self.faults:
                    return False
                if self.RRQ[h] and self.RRQ[h][0].sqn < p.csn[h]:
                    return False
        return True

    def move(self, p: Data) -> None:
        next(queue for queue in self.RRQ if queue and queue[0] is p).popleft()
        self.CRQ.append(p)
        self.AL[self.i][p.src] = p.sqn if "S3" in self.faults else p.sqn + 1

    def is_fully_accepted(self, p: Data) -> bool:
        return p.sqn < min(self.AL[h][p.src] for h in p.dst)


def concurrent(p: Data, q: Data) -> bool:
    """Theorem 2, both ways, for messages of two processes."""
    return p.src != q.src and not p.sqn < q.csn[p.src] and not q.sqn < p.csn[q.src]
