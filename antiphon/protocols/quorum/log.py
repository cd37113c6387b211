"""The replicated log: entries behind a snapshot, and the members that they name."""

from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.protocols.quorum.pdus import CONFIG, MOST_ENTRIES, NO_CONFIG, Config, Entry

ENTRY_BYTES: Final = 40
"""Bytes that an entry counts for beside its body."""


def weight(entry: Entry) -> int:
    """Bytes that an entry takes, about."""
    return ENTRY_BYTES + len(entry.body)


def read_config(entry: Entry) -> Config | None:
    """The members that an entry names; None if it makes no sense."""
    try:
        return msgspec.msgpack.decode(entry.body, type=Config)
    except msgspec.MsgspecError:
        return None


class Log:
    """Entries `base + 1` to `last`. Index 0 stands before the first entry."""

    def __init__(self) -> None:
        self.base = 0
        self.base_term = 0
        self.size = 0
        """Bytes of all entries."""
        self.new_bytes = 0
        """Bytes of the entries behind the last snapshot."""
        self._entries: list[Entry] = []
        self._configs: list[tuple[int, Config]] = [(0, NO_CONFIG)]

    @property
    def last(self) -> int:
        return self.base + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self.base_term

    @property
    def config(self) -> Config:
        """The latest members, committed or not."""
        return self._configs[-1][1]

    @property
    def config_index(self) -> int:
        """The index of the entry that names them."""
        return self._configs[-1][0]

    def config_at(self, index: int) -> Config:
        """The members as the entries up to an index name them."""
        found = self._configs[0][1]
        for at, config in self._configs:
            if at > index:
                break
            found = config
        return found

    @property
    def base_config(self) -> Config:
        return self._configs[0][1]

    def begin(self, index: int, term: int, config: Config) -> None:
        """Begin behind a snapshot, with no entries."""
        self.base, self.base_term, self.size = index, term, 0
        self.new_bytes = 0
        self._entries = []
        self._configs = [(index, config)]

    def term_at(self, index: int) -> int | None:
        """The term of an entry; None if it is not here."""
        if index == self.base:
            return self.base_term
        place = index - self.base - 1
        return self._entries[place].term if 0 <= place < len(self._entries) else None

    def entry(self, index: int) -> Entry:
        return self._entries[index - self.base - 1]

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries at the end."""
        for entry in entries:
            self._entries.append(entry)
            self.size += weight(entry)
            self.new_bytes += weight(entry)
            if entry.kind == CONFIG:
                config = read_config(entry)
                if config is not None:
                    self._configs.append((self.last, config))

    def cut(self, index: int) -> None:
        """Drop the entries behind an index."""
        place = index - self.base
        assert place >= 0, "an entry below the snapshot cannot be dropped"
        for entry in self._entries[place:]:
            self.size -= weight(entry)
            self.new_bytes -= weight(entry)
        del self._entries[place:]
        while self._configs[-1][0] > index:
            self._configs.pop()

    def compact(self, index: int) -> None:
        """Forget the entries up to an index."""
        if index <= self.base:
            return
        term = self.term_at(index)
        assert term is not None, "only entries that are here can be forgotten"
        config = self.config_at(index)
        for entry in self._entries[: index - self.base]:
            self.size -= weight(entry)
        del self._entries[: index - self.base]
        self._configs = [(index, config), *(each for each in self._configs if each[0] > index)]
        self.base, self.base_term = index, term

    def covered(self, index: int) -> None:
        """A snapshot covers the entries up to an index."""
        self.new_bytes = sum(map(weight, self.behind(index)))

    def some(self, begin: int, most_bytes: int) -> tuple[Entry, ...]:
        """Entries from `begin` on, at least one, up to about this many bytes."""
        taken: list[Entry] = []
        size = 0
        for entry in self._entries[begin - self.base - 1 : begin - self.base - 1 + MOST_ENTRIES]:
            size += weight(entry)
            if taken and size > most_bytes:
                break
            taken.append(entry)
        return tuple(taken)

    def behind(self, index: int) -> list[Entry]:
        """All entries behind an index."""
        return self._entries[max(0, index - self.base) :]

    def first_of_term(self, index: int) -> int:
        """The first index, at or below this, of the same term."""
        term = self.term_at(index)
        while index > self.base + 1 and self.term_at(index - 1) == term:
            index -= 1
        return index

    def kept_from(self, index: int, most_bytes: int) -> int:
        """The lowest index whose entries up to `index` are at most this many bytes."""
        size = 0
        while index > self.base:
            size += weight(self.entry(index))
            if size > most_bytes:
                break
            index -= 1
        return index
