"""Whether what a peer says can be meant: numbers in bounds, lists that fit one another."""

from collections.abc import Collection, Iterable

from antiphon.core.ids import Group
from antiphon.core.wire import MAXIMUM_NAME_BYTES, Pdu
from antiphon.protocols.metagroups.parts import is_part
from antiphon.protocols.metagroups.pdus import (
    BUSY,
    FINISHED,
    LARGEST,
    LARGEST_BATCH_BYTES,
    LONGEST_RULES,
    MOST_GROUPS,
    MOST_LETTERS,
    MOST_MISSING,
    NO_GROUP,
    Accept,
    Body,
    Copy,
    Decision,
    Entry,
    Goodbye,
    Held,
    Holding,
    Install,
    Life,
    Mark,
    Part,
    Prepare,
    Progress,
    Query,
    Report,
    Request,
    Taken,
    Token,
    TokenRequest,
    TreeId,
    Word,
)


def makes_sense(pdu: Pdu) -> bool:
    """Whatever passes here can be worked with; whether it is true is another question."""
    tree: TreeId | None = getattr(pdu, "tree", None)
    if tree is not None and not _in_bounds(tree):
        return False
    match pdu:
        case Request():
            return _in_bounds((pdu.node, pdu.seq - 1, pdu.number, *pdu.life)) and _is_batch(pdu)
        case TokenRequest():
            told = (pdu.node, pdu.seq - 1, pdu.number, pdu.count - 1, *pdu.life)
            return _in_bounds(told) and bool(pdu.group)
        case Token():
            place = (pdu.channel, pdu.seq - 1, pdu.number, pdu.count - 1, pdu.incarnation)
            return _in_bounds(place) and 0 <= pdu.settled <= pdu.ready < LARGEST and bool(pdu.group)
        case Body():
            return _in_bounds((pdu.number, *pdu.life)) and _is_batch(pdu)
        case Entry():
            numbers = (pdu.channel, pdu.seq - 1, pdu.number, pdu.incarnation)
            return _in_bounds(numbers) and 0 <= pdu.settled <= pdu.ready < LARGEST and _is_batch(pdu)
        case Copy():
            return _in_bounds((pdu.number, pdu.incarnation)) and _is_batch(pdu)
        case Taken():
            return _in_bounds((pdu.node, *pdu.life)) and 0 <= pdu.stable <= pdu.accepted < LARGEST
        case Query():
            return _in_bounds((pdu.node, *pdu.life))
        case Mark():
            return _in_bounds((pdu.channel,)) and 0 <= pdu.settled <= pdu.ready <= pdu.last < LARGEST
        case Held():
            fits = 0 <= pdu.done <= pdu.held < LARGEST
            return fits and _in_bounds((pdu.channel, *pdu.missing)) and len(pdu.missing) <= MOST_MISSING
        case _:
            return _is_word_of_council(pdu)


def _is_word_of_council(pdu: Pdu) -> bool:
    rules: str = getattr(pdu, "rules", "")
    if len(rules) > LONGEST_RULES or not rules.isprintable():
        return False
    match pdu:
        case Word():
            groups = are_few_enough(pdu.groups)
            numbers = (pdu.version, pdu.serial, *pdu.life)
            return groups and _in_bounds(numbers) and _is_origin(pdu.origin) and _are_stages(pdu.stages)
        case Part():
            return is_part(pdu)
        case Progress():
            return _are_stages(pdu.stages)
        case Goodbye():
            return _in_bounds(pdu.life)
        case Prepare():
            return _in_bounds((pdu.version, pdu.round)) and _is_origin(pdu.origin)
        case Report():
            votes = pdu.vote is None or _is_decision(pdu.vote.decision)
            return votes and _in_bounds((pdu.version, pdu.round, *pdu.life)) and _are_holdings(pdu.holdings)
        case Accept():
            return _in_bounds((pdu.round,)) and _is_decision(pdu.decision, pdu.version)
        case Install():
            return _is_decision(pdu.decision)
        case _:
            return all(_in_bounds((value,)) for value in _numbers(pdu))


def are_few_enough(groups: Collection[Group]) -> bool:
    """Whether one site can be in all these groups."""
    letters = sum(map(len, groups))
    longest = max(map(len, groups), default=0)
    return len(groups) <= MOST_GROUPS and letters <= MOST_LETTERS and longest <= MAXIMUM_NAME_BYTES


def _numbers(pdu: Pdu) -> Iterable[int]:
    fields = (getattr(pdu, name) for name in pdu.__struct_fields__)
    return (value for value in fields if isinstance(value, int))


def _in_bounds(numbers: Iterable[int]) -> bool:
    return all(0 <= number < LARGEST for number in numbers)


def _is_batch(pdu: Request | Entry | Body | Copy) -> bool:
    ends = isinstance(pdu, Entry) and pdu.group == NO_GROUP
    return len(pdu.bodies.data) <= LARGEST_BATCH_BYTES + 4096 and (ends or bool(pdu.group))


def _are_stages(stages: tuple[tuple[TreeId, int], ...]) -> bool:
    return all(_in_bounds(tree) and BUSY <= stage <= FINISHED for tree, stage in stages)


def _is_origin(origin: tuple[int, int, str] | None) -> bool:
    return origin is None or _in_bounds(origin[:2])


def _are_holdings(holdings: tuple[Holding, ...]) -> bool:
    return all(
        _in_bounds(holding.tree)
        and 0 <= holding.delivered <= len(holding.stream)
        and all(_in_bounds((item.number, item.count)) for item in (*holding.stream, *holding.waiting))
        for holding in holdings
    )


def _is_decision(decision: Decision, version: int | None = None) -> bool:
    """Seats in order, a life for each, endings whose lists fit, and trees that follow from the seats."""
    names = [seat.site for seat in decision.seats]
    lives: list[Life] = [seat.life for seat in decision.seats]
    if version is not None and decision.version != version:
        return False
    in_order = bool(names) and names == sorted(set(names))
    seats = in_order and all(_in_bounds(life) for life in lives)
    groups = all(list(seat.groups) == sorted(set(seat.groups)) for seat in decision.seats)
    endings = all(0 <= ending.sure <= len(ending.items) == len(ending.sources) for ending in decision.endings)
    return _in_bounds((decision.version, decision.ballot[0])) and seats and groups and endings
