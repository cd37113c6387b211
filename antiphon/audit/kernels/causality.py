"""Causal order with vectors of prefix lengths instead of sets.

The messages that one site sent form a chain: each precedes the next. So the part of a message's causal past
in a chain is a prefix of it, and one length per chain gives the past exactly. Unsent messages are in no such
chain; those that a site delivered form one more chain for that site, and such a message is in a past if it
is in the prefix of any site's chain.

The logs are swept side by side: a delivery waits until its message's vector is known, which is once its send
has been passed. Impossible logs, such as deliveries before their own sends in a cycle, never get there. Then
vectors are raised in passes over all logs until nothing changes, which gives the same least solution.

The vector of a message includes the message itself. Memory: 4 bytes per message sent and chain.

Rows of one step are unordered. `groups[entry]` is the first entry of an entry's step, `rows[entry]` that of
its row; both are empty if no two rows share a step. Then the sends of one step are laid out first, each row
of them in a chain of its own, and what a step adds to the site's clock counts only for later steps.
"""

from typing import Any

import numpy as np

from antiphon.core.compiled import compiled


@compiled
def send_ranks(kinds: Any, messages: Any, starts: Any, send_entry: Any, groups: Any, rows: Any) -> Any:
    """Each message's chain (the site that sent it, counted among those that send) and rank in it, or -1.

    Also the end of each site's log up to its last send: entries after it precede nothing. A site has as many
    chains as one of its steps has rows of sends.
    """
    chain = np.full(len(send_entry), -1, np.int32)
    rank = np.full(len(send_entry), -1, np.int32)
    ends = starts[:-1].copy()
    chains = 0
    for site in range(len(starts) - 1):
        sent = [0 for _ in range(0)]
        own, last = 0, -1
        for entry in range(starts[site], starts[site + 1]):
            if kinds[entry] != 2:
                continue
            if not len(groups) or last < 0 or groups[entry] != groups[last]:
                own = 0
            elif rows[entry] != rows[last]:
                own += 1
            if own == len(sent):
                sent.append(0)
            chain[messages[entry]] = chains + own
            rank[messages[entry]] = sent[own]
            sent[own] += 1
            ends[site] = entry + 1
            last = entry
        chains += len(sent)
    return chain, rank, ends, chains


@compiled
def unsent_chains(delivered: Any, starts: Any, chain: Any, chains: int) -> Any:
    """The places (homes) of unsent messages in the sites' chains of such messages.

    Returns the number of all chains, each message's first home (-1 if it was sent), and for each home its
    chain, its rank, its site and the same message's next home.
    """
    first_home = np.full(len(chain), -1, np.int32)
    unsent = 0
    for place in range(len(delivered)):
        if chain[delivered[place]] < 0:
            unsent += 1
    homes = np.empty((unsent, 4), np.int32)
    count = 0
    for site in range(len(starts) - 1):
        rank = 0
        for place in range(starts[site], starts[site + 1]):
            message = delivered[place]
            if chain[message] >= 0:
                continue
            known = first_home[message]
            if known >= 0 and homes[known, 2] == site:
                continue
            homes[count, 0] = chains
            homes[count, 1] = rank
            homes[count, 2] = site
            homes[count, 3] = known
            first_home[message] = count
            rank += 1
            count += 1
        if rank:
            chains += 1
    return chains, first_home, homes


@compiled
def _merge(clock: Any, site: int, message: int, row: Any, vectors: Any, first_home: Any, homes: Any) -> None:
    """A delivery: the site's next send follows the message and its whole past."""
    at = row[message]
    if at >= 0:
        for chain in range(len(clock)):
            if vectors[at, chain] > clock[chain]:
                clock[chain] = vectors[at, chain]
        return
    home = first_home[message]
    while home >= 0:
        if homes[home, 2] == site:
            clock[homes[home, 0]] = max(clock[homes[home, 0]], homes[home, 1] + 1)
        home = homes[home, 3]


@compiled
def _end_step(
    clock: Any, entry: int, start: int, kinds: Any, messages: Any, groups: Any, chain: Any, rank: Any
) -> None:
    """If a step of several rows ends before this entry, add its sends to the site's clock."""
    if not len(groups) or entry == start or groups[entry] != entry:
        return
    for before in range(groups[entry - 1], entry):
        if kinds[before] == 2:
            own = chain[messages[before]]
            clock[own] = max(clock[own], rank[messages[before]] + 1)


@compiled
def sweep(
    kinds: Any,
    messages: Any,
    starts: Any,
    groups: Any,
    ends: Any,
    row: Any,
    chain: Any,
    rank: Any,
    first_home: Any,
    homes: Any,
    vectors: Any,
) -> int:
    """Fill in the vectors; return how many sites got stuck."""
    sites = len(starts) - 1
    clocks = np.zeros((sites, vectors.shape[1]), np.int32)
    known = np.zeros(len(vectors), np.bool_)
    pointer = starts[:-1].copy()
    waiting = np.full(len(vectors), -1, np.int32)
    next_waiting = np.full(sites, -1, np.int32)
    moving = np.empty(sites, np.int32)
    for site in range(sites):
        moving[site] = site
    moving_count, stuck = sites, sites
    while moving_count:
        moving_count -= 1
        site = moving[moving_count]
        clock = clocks[site]
        entry = pointer[site]
        while entry < ends[site]:
            message = messages[entry]
            _end_step(clock, entry, starts[site], kinds, messages, groups, chain, rank)
            if kinds[entry] == 4:
                at = row[message]
                if at >= 0 and not known[at]:
                    next_waiting[site] = waiting[at]
                    waiting[at] = site
                    break
                _merge(clock, site, message, row, vectors, first_home, homes)
            elif kinds[entry] == 2:
                at = row[message]
                if not len(groups):
                    clock[chain[message]] = rank[message] + 1
                vectors[at] = clock
                vectors[at, chain[message]] = rank[message] + 1
                known[at] = True
                other = waiting[at]
                while other >= 0:
                    moving[moving_count] = other
                    moving_count += 1
                    other = next_waiting[other]
            entry += 1
        pointer[site] = entry
        if entry >= ends[site]:
            stuck -= 1
    return stuck


@compiled
def raise_to_fixpoint(
    kinds: Any,
    messages: Any,
    starts: Any,
    groups: Any,
    ends: Any,
    row: Any,
    chain: Any,
    rank: Any,
    first_home: Any,
    homes: Any,
    vectors: Any,
) -> None:
    """Pass over all logs until no vector rises any more."""
    changed = True
    while changed:
        changed = False
        for site in range(len(starts) - 1):
            clock = np.zeros(vectors.shape[1], np.int32)
            for entry in range(starts[site], ends[site]):
                message = messages[entry]
                _end_step(clock, entry, starts[site], kinds, messages, groups, chain, rank)
                if kinds[entry] == 4:
                    _merge(clock, site, message, row, vectors, first_home, homes)
                elif kinds[entry] == 2:
                    at, own = row[message], chain[message]
                    if not len(groups):
                        clock[own] = max(clock[own], rank[message] + 1)
                    if rank[message] + 1 > vectors[at, own]:
                        vectors[at, own] = rank[message] + 1
                        changed = True
                    for other in range(len(clock)):
                        if clock[other] > vectors[at, other]:
                            vectors[at, other] = clock[other]
                            changed = True


@compiled
def precedes(
    cause: int, effect: int, row: Any, chain: Any, rank: Any, first_home: Any, homes: Any, vectors: Any
) -> bool:
    """Whether one message is in the causal past of another."""
    at = row[effect]
    if at < 0 or cause == effect:
        return False
    if chain[cause] >= 0:
        return bool(rank[cause] < vectors[at, chain[cause]])
    home = first_home[cause]
    while home >= 0:
        if homes[home, 1] < vectors[at, homes[home, 0]]:
            return True
        home = homes[home, 3]
    return False


@compiled
def _lower(least: Any, message: int, chain: Any, rank: Any, first_home: Any, homes: Any) -> None:
    """Keep the least rank of each chain."""
    if chain[message] >= 0:
        least[chain[message]] = min(least[chain[message]], rank[message])
        return
    home = first_home[message]
    while home >= 0:
        least[homes[home, 0]] = min(least[homes[home, 0]], homes[home, 1])
        home = homes[home, 3]


@compiled
def _is_early(message: int, row: Any, vectors: Any, least: Any) -> bool:
    """Whether some message in this one's past is delivered later."""
    at = row[message]
    if at < 0:
        return False
    early = False
    for other in range(vectors.shape[1]):
        if least[other] < vectors[at, other]:
            early = True
            break
    return early


@compiled
def _is_early_in_row(
    place: int,
    delivered: Any,
    rows: Any,
    end: int,
    row: Any,
    chain: Any,
    rank: Any,
    first_home: Any,
    homes: Any,
    vectors: Any,
) -> bool:
    """Whether some message in this one's past is delivered later in the same row of a batch."""
    later = place + 1
    while later < end and rows[later] == rows[place]:
        if precedes(delivered[later], delivered[place], row, chain, rank, first_home, homes, vectors):
            return True
        later += 1
    return False


@compiled
def find_early(
    found: Any,
    delivered: Any,
    starts: Any,
    groups: Any,
    rows: Any,
    row: Any,
    chain: Any,
    rank: Any,
    first_home: Any,
    homes: Any,
    vectors: Any,
) -> int:
    """In each lane, the deliveries that a message of their past follows."""
    never = np.iinfo(np.int32).max
    count = 0
    for lane in range(len(starts) - 1):
        least = np.full(vectors.shape[1], never, np.int32)
        end = starts[lane + 1]
        while end > starts[lane]:
            begin = end - 1
            while len(groups) and begin > starts[lane] and groups[begin - 1] == groups[begin]:
                begin -= 1
            for place in range(begin, end):
                message = delivered[place]
                if _is_early(message, row, vectors, least) or (
                    end - begin > 1
                    and _is_early_in_row(
                        place, delivered, rows, end, row, chain, rank, first_home, homes, vectors
                    )
                ):
                    if count < len(found):
                        found[count, 0] = place
                    count += 1
            for place in range(begin, end):
                _lower(least, delivered[place], chain, rank, first_home, homes)
            end = begin
    return count


@compiled
def find_cause(
    delivered: Any,
    place: int,
    end: int,
    groups: Any,
    rows: Any,
    row: Any,
    chain: Any,
    rank: Any,
    first_home: Any,
    homes: Any,
    vectors: Any,
) -> int:
    """The next delivery of the lane whose message precedes that of the delivery at `place`."""
    for later in range(place + 1, end):
        if len(groups) and groups[later] == groups[place] and rows[later] != rows[place]:
            continue
        if precedes(delivered[later], delivered[place], row, chain, rank, first_home, homes, vectors):
            return later
    return -1


@compiled
def _note_before(
    begin: int, end: int, after: int, kinds: Any, messages: Any, via: Any, touched: Any, following: Any
) -> None:
    """Enter the messages of some entries as found by way of `after`."""
    for entry in range(begin, end):
        before = messages[entry]
        if (kinds[entry] == 2 or kinds[entry] == 4) and before != after and via[before, 0] < 0:
            via[before, 0] = entry
            via[before, 1] = after
            touched.append(before)
            following.append(before)


@compiled
def find_chain(
    kinds: Any,
    messages: Any,
    starts: Any,
    groups: Any,
    rows: Any,
    send_entry: Any,
    cause: int,
    effect: int,
    via: Any,
) -> Any:
    """A shortest chain of entries from cause to effect: breadth first, backwards from the effect's send.

    Each link is the entry at which a site delivered or sent a message, and the message that it sent after
    that. No part of a log is searched twice. `via` holds two columns of -1 before and after.
    """
    searched = starts[:-1].copy()
    frontier = [effect]
    touched = [effect]
    while via[cause, 0] < 0 and len(frontier):
        following = [effect for _ in range(0)]
        for after in frontier:
            sent_at = send_entry[after]
            if sent_at < 0:
                continue
            site = np.searchsorted(starts, sent_at, side="right") - 1
            begin = groups[sent_at] if len(groups) else sent_at
            _note_before(searched[site], begin, after, kinds, messages, via, touched, following)
            if len(groups):
                _note_before(rows[sent_at], sent_at, after, kinds, messages, via, touched, following)
            searched[site] = max(searched[site], begin)
        frontier = following
    assert via[cause, 0] >= 0, "the cause is in the past of the effect, so a chain leads there"
    links = [(via[cause, 0], via[cause, 1])]
    while links[-1][1] != effect:
        links.append((via[links[-1][1], 0], via[links[-1][1], 1]))
    for message in touched:
        via[message, 0] = -1
        via[message, 1] = -1
    return links
