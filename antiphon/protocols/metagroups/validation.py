"""Validation of PDUs: relations between fields, each of which is within its own bounds."""

from collections.abc import Collection

from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.ids import Group
from antiphon.core.wire import MAXIMUM_NAME_BYTES, Pdu
from antiphon.protocols.metagroups.parts import is_part
from antiphon.protocols.metagroups.pdus import (
    LARGEST_BATCH_BYTES,
    MOST_GROUPS,
    MOST_LETTERS,
    Accept,
    AcceptChange,
    Body,
    Change,
    Copy,
    Decision,
    Ending,
    Entry,
    Heartbeat,
    Held,
    Holding,
    Install,
    Item,
    Mark,
    Part,
    Report,
    Request,
    SiteRecord,
    Taken,
    Token,
    TokenRequest,
)


def makes_sense(pdu: Pdu) -> bool:
    """Whether a PDU is consistent in itself; whether it is true is another question."""
    match pdu:
        case Request() | Body() | Copy():
            return _is_batch(pdu)
        case TokenRequest():
            return _can_be_counted(pdu)
        case Token():
            return pdu.settled <= pdu.ready and _can_be_counted(pdu)
        case Entry():
            return pdu.settled <= pdu.ready and _is_batch(pdu)
        case Taken():
            return pdu.stable <= pdu.accepted
        case Mark():
            return pdu.settled <= pdu.ready <= pdu.last
        case Held():
            return pdu.done <= pdu.held
        case _:
            return _is_membership_pdu(pdu)


def _is_membership_pdu(pdu: Pdu) -> bool:
    rules: str = getattr(pdu, "rules", "")
    if not rules.isprintable():
        return False
    match pdu:
        case Heartbeat():
            return are_few_enough(pdu.groups)
        case Part():
            return is_part(pdu)
        case Report():
            votes = pdu.vote is None or _is_decision(pdu.vote.decision)
            records = () if pdu.record is None else (pdu.record,)
            return votes and all(map(_is_holding, pdu.holdings)) and _are_records(records)
        case Accept():
            return pdu.decision.version == pdu.version and _is_decision(pdu.decision)
        case AcceptChange():
            return _is_change(pdu.change)
        case Install():
            return _is_decision(pdu.decision)
        case _:
            return True


def are_few_enough(groups: Collection[Group]) -> bool:
    """Whether one site can be in all these groups."""
    letters = sum(map(len, groups))
    longest = max(map(len, groups), default=0)
    return len(groups) <= MOST_GROUPS and letters <= MOST_LETTERS and longest <= MAXIMUM_NAME_BYTES


def _can_be_counted(item: Item | TokenRequest | Token) -> bool:
    """Whether there are numbers left after these messages."""
    return item.number + item.count < NUMBER_LIMIT


def _is_batch(pdu: Request | Entry | Body | Copy) -> bool:
    fits = len(pdu.bodies.wire()) <= LARGEST_BATCH_BYTES
    return fits and pdu.number + len(pdu.bodies) < NUMBER_LIMIT


def _is_holding(holding: Holding) -> bool:
    items = (*holding.stream, *holding.waiting)
    return holding.delivered <= len(holding.stream) and all(map(_can_be_counted, items))


def _is_decision(decision: Decision) -> bool:
    """Records in order, groups that a site can be in, and endings with lists of equal length."""
    return _are_records(decision.records) and all(map(_is_ending, decision.endings))


def _is_change(change: Change) -> bool:
    return _are_records(change.records) and all(map(_is_ending, change.endings))


def _are_records(records: Collection[SiteRecord]) -> bool:
    names = [record.site for record in records]
    return names == sorted(set(names)) and all(
        list(record.groups) == sorted(set(record.groups)) and are_few_enough(record.groups)
        for record in records
    )


def _is_ending(ending: Ending) -> bool:
    fits = ending.sure <= len(ending.items) == len(ending.sources)
    return fits and all(map(_can_be_counted, ending.items))
