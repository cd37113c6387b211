"""Who reads what in one run: the consumers of each domain, and of messages whose domain no record tells.

A message is for every site that delivered anything of its domain; if its send names a group, for every site
that delivered anything of this group in its domain. A domain may be none: where no record names a domain, or
where a site that names domains delivers messages without one.

A message is unplaced where its group has domains, and no record tells which of them is the message's own:
Kafka's producers do not know the partition, so that only consumers could name it. It is for the sites that
read every domain of its group, and for those that delivered it. Of the group's other sites nothing can tell
whether they should have it: these are doubtful. If no site delivered it, it is for all of them.
"""

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Final

from antiphon.core.ids import Group, Site

MOST_LACKED: Final = 8
"""A site that reads every named domain lacks at most one unplaced message for each eight that it delivered.
One that lacks more may be no reader of a domain that no record names. Raising it leaves more losses unjudged.
"""


class Readers:
    """The sites that deliver what; without a group what the whole run shows, messages with groups included.

    It is asked only after all is added.
    """

    def __init__(self) -> None:
        self._everyone: defaultdict[Group | None, set[Site]] = defaultdict(set)
        self._domains: defaultdict[Group | None, set[str | None]] = defaultdict(set)
        self._sites: defaultdict[tuple[Group | None, str | None], set[Site]] = defaultdict(set)
        self._held: Counter[tuple[Group | None, Site]] = Counter()
        self._nameless: Counter[tuple[Group | None, Site | None]] = Counter()
        self._certain: dict[Group | None, frozenset[Site]] = {}

    def add(self, group: Group | None, domain: str | None, site: Site, messages: int = 0) -> None:
        """A site delivered messages of a group and a domain, or of none."""
        for each in {group, None}:
            self._everyone[each].add(site)
            self._domains[each].add(domain)
            self._sites[each, domain].add(site)
            self._held[each, site] += messages

    def add_nameless(self, group: Group | None, site: Site | None, messages: int) -> None:
        """A site delivered messages of a group without a domain that records tell; without a site: all sites
        together did. They are unplaced if the group has domains."""
        for each in {group, None}:
            self._nameless[each, site] += messages
            if site is not None:
                self._everyone[each].add(site)
                self._held[each, site] += messages

    def has_domains(self, group: Group | None) -> bool:
        """Whether domains of the group were delivered: only then messages can be unplaced."""
        return any(domain is not None for domain in self._domains.get(group, ()))

    def everyone(self, group: Group | None = None) -> frozenset[Site]:
        """The sites that delivered anything of the group."""
        return frozenset(self._everyone.get(group, ()))

    def of(self, group: Group | None, domain: str | None) -> frozenset[Site]:
        """The sites that read a domain, or the messages that have none."""
        if domain is None and not self.has_domains(group):
            return self.everyone(group)
        return frozenset(self._sites.get((group, domain), ()))

    def certain(self, group: Group | None) -> frozenset[Site]:
        """The sites that every unplaced message of the group is for."""
        if group not in self._certain:
            reading = (self._sites[group, domain] for domain in self._domains.get(group, ()))
            every = self.everyone(group).intersection(*reading)
            self._certain[group] = frozenset(site for site in every if self._lacks_few(group, site))
        return self._certain[group]

    def of_unplaced(self, group: Group | None, holders: Collection[Site]) -> frozenset[Site]:
        """The sites that an unplaced message is for, which these sites delivered.

        What no site delivered counts as missing everywhere: losses are not promised then, and an audit that
        is to judge them nevertheless must not find that nothing is missing.
        """
        return self.certain(group).union(holders) if holders else self.everyone(group)

    def _lacks_few(self, group: Group | None, site: Site) -> bool:
        lacked = self._nameless[group, None] - self._nameless[group, site]
        return lacked * MOST_LACKED <= self._held[group, site]

    def doubtful(self, group: Group | None) -> frozenset[Site]:
        """The sites of which nothing can tell whether an unplaced message of the group is for them."""
        return self.everyone(group) - self.certain(group)
