"""Validation of PDUs: numbers in bounds, known names, lists that fit one another."""

from collections.abc import Collection, Iterable

from antiphon.core.ids import Site
from antiphon.core.wire import Pdu
from antiphon.protocols.rivals.totem.pdus import (
    LARGEST,
    LARGEST_BATCH_BYTES,
    MOST_MISSING,
    NOBODY,
    UNKNOWN,
    Commit,
    Evidence,
    Join,
    Leave,
    Message,
    Recovered,
    RingId,
    State,
    Token,
)


def makes_sense(pdu: Pdu, names: Collection[Site]) -> bool:
    """Whether a PDU is consistent in itself; whether it is true is another question."""
    ring = getattr(pdu, "ring", None)
    if ring is not None and not _is_ring(ring, names):
        return False
    match pdu:
        case Message():
            return _in_bounds(pdu.seq - 1, pdu.number) and _is_batch(pdu, names)
        case Recovered():
            return _in_bounds(pdu.seq - 1, pdu.old_seq - 1, pdu.number) and _is_batch(pdu, names)
        case State():
            streams = _in_bounds(*pdu.streams.values()) and _are_known(pdu.streams, names)
            return streams and _in_bounds(pdu.seq - 1, pdu.old_seq)
        case Token():
            return _is_token(pdu, names)
        case Commit():
            return _is_commit(pdu, names)
        case Join():
            known = _are_known(pdu.known, names) and _are_known(pdu.failed, names)
            return known and _in_bounds(pdu.incarnation, pdu.ring_seq)
        case Leave():
            return _in_bounds(pdu.incarnation)
        case _:
            return True


def _in_bounds(*numbers: int) -> bool:
    return all(0 <= number < LARGEST for number in numbers)


def _are_known(sites: Collection[Site], names: Collection[Site]) -> bool:
    return len(sites) <= len(names) and all(site in names for site in sites)


def _is_ring(ring: RingId, names: Collection[Site]) -> bool:
    return _in_bounds(ring.seq, ring.incarnation) and ring.representative in names


def _is_batch(pdu: Message | Recovered, names: Collection[Site]) -> bool:
    return pdu.sender in names and len(pdu.bodies.data) <= LARGEST_BATCH_BYTES + 4096


def _is_token(pdu: Token, names: Collection[Site]) -> bool:
    numbers = (pdu.token_seq, pdu.seq, pdu.aru, pdu.sent, pdu.backlog, pdu.unfinished, pdu.base - UNKNOWN)
    lacked = len(pdu.missing) <= MOST_MISSING and _in_bounds(*pdu.missing)
    ordered = max(pdu.aru, pdu.base) <= pdu.seq
    cargo = all(
        each.sender in names and 0 < each.seq <= pdu.seq and _in_bounds(each.number) for each in pdu.cargo
    )
    known = pdu.aru_site in names or pdu.aru_site == NOBODY
    return _in_bounds(*numbers) and lacked and ordered and known and cargo


def _is_commit(pdu: Commit, names: Collection[Site]) -> bool:
    members = pdu.members
    if not 0 < len(members) <= len(names) or len(set(members)) != len(members):
        return False
    if not 0 < pdu.hop <= 2 * len(members) or len(pdu.evidence) != min(pdu.hop, len(members)):
        return False
    return _are_known(members, names) and all(_is_evidence(each, names) for each in pdu.evidence)


def _is_evidence(found: Evidence, names: Collection[Site]) -> bool:
    rings: Iterable[RingId] = (ring for ring in (found.ring, found.attempt) if ring is not None)
    return _in_bounds(found.incarnation, found.base, found.aru, found.attempt_aru) and all(
        _is_ring(ring, names) for ring in rings
    )
