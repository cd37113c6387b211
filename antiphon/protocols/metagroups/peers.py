"""The other sites as one site sees them: a failure detector, and the membership changes that they request.

Every site sends heartbeats to the coordinator, and the coordinator sends them to all. The coordinator is the
first site by name that is not suspected. When it falls silent, each site turns to the next one, until a site
finds that it is the first itself. From then on that site monitors all others.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from antiphon.core.fields import INCARNATION_LIMIT
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.pdus import MOST_SITES, Heartbeat, Session, SiteRecord
from antiphon.protocols.metagroups.view import View

LATEST_INCARNATION: Final = INCARNATION_LIMIT // 2
"""Latest incarnation that a clock can give. The rest is kept for processes that take the name later."""
LONGEST_LEAP: Final = 1 << 20
"""Milliseconds by which an incarnation may exceed that, or the site's last incarnation that does."""
NO_SESSION: Final[Session] = (-1, 0)
"""Before any session."""
MOST_HEARD: Final = 2 * MOST_SITES
"""Sites, in the cluster or outside it, whose last sign of life is remembered. Raising it costs memory."""


class PeerTable:
    """Signs of life, suspicions and requested records, by site."""

    def __init__(self, site: Site, suspect_ns: Nanoseconds) -> None:
        self._site = site
        self._suspect_ns = suspect_ns
        self._last_heard_ns: dict[Site, Nanoseconds] = {}
        """In the order of their last PDU, the latest last."""
        self._sessions: dict[Site, Session] = {}
        """The session that each site has announced itself."""
        self._since_ns: Nanoseconds = 0
        """When this site began to monitor the sites that it monitors now."""
        self._coordinator: Site = site
        self._suspected: set[Site] = set()
        self._requests: dict[Site, SiteRecord] = {}
        self.granted: dict[Site, SiteRecord] = {}
        """Records of sites that were granted a move by this site since the current view was installed."""
        self._left: dict[Site, Session] = {}
        """Sites of the current view that have left without a vote, with the session that is over."""
        self._without_memory: set[Site] = set()
        """Sites of the current view that have lost their memory, or left for good, since it was installed."""

    def on_view(self, now: Nanoseconds, view: View) -> None:
        """A view was installed: drop the requests that it fulfils, and what concerns sites outside."""
        self._suspected &= view.sessions.keys()
        self._without_memory.clear()
        self._left = {site: self._left[site] for site in self.left(view)}
        self.granted.clear()
        self._requests = {
            site: record
            for site, record in self._requests.items()
            if _is_newer(record, view.records.get(site))
        }
        known = view.sessions.keys() | self._requests.keys()
        self._last_heard_ns = {
            site: heard_ns for site, heard_ns in self._last_heard_ns.items() if site in known
        }
        self._sessions = {
            site: session for site, session in self._sessions.items() if site in self._last_heard_ns
        }
        self.restart_listening(now)

    def restart_listening(self, now: Nanoseconds) -> None:
        """Count the silence of every site from now on."""
        self._since_ns = now

    def reset(self, now: Nanoseconds) -> None:
        """This site starts a new session."""
        self._last_heard_ns.clear()
        self._sessions.clear()
        self._suspected.clear()
        self._without_memory.clear()
        self._left.clear()
        self._requests.clear()
        self.granted.clear()
        self.restart_listening(now)

    # What peers send

    def on_message(self, now: Nanoseconds, site: Site, session: Session | None = None) -> None:
        """A site has sent something; `session` if that tells which one it is in."""
        self._last_heard_ns.pop(site, None)
        self._last_heard_ns[site] = now
        self._suspected.discard(site)
        if session is not None:
            self._sessions[site] = session
        if len(self._last_heard_ns) > MOST_HEARD:
            oldest = next(iter(self._last_heard_ns))
            del self._last_heard_ns[oldest]
            self._sessions.pop(oldest, None)

    def can_be_in(self, site: Site, session: Session) -> bool:
        """Whether a site can be in this session."""
        return session[0] <= max(self.incarnation_of(site), LATEST_INCARNATION) + LONGEST_LEAP

    def has_announced(self, site: Site, session: Session) -> bool:
        """Whether a site has announced this session, or a later one, itself."""
        return self._sessions.get(site, NO_SESSION) >= session

    def incarnation_of(self, site: Site) -> int:
        """The incarnation that a site has announced; 0 if it has announced none."""
        return max(0, self._sessions.get(site, NO_SESSION)[0])

    def last_heard_ns(self, site: Site) -> Nanoseconds | None:
        """When a site last sent anything."""
        return self._last_heard_ns.get(site)

    def suspect(self, site: Site) -> None:
        """The site has said goodbye, or an outside detector suspects it."""
        self._suspected.add(site)

    def note_left(self, site: Site, session: Session, *, has_voted: bool) -> None:
        """The site has left for good. If it has voted, what it knows of the next view is lost, as after a
        restart; otherwise no decision that it had to accept was made, nor will be."""
        self._suspected.add(site)
        if has_voted:
            self._without_memory.add(site)
        else:
            self._left[site] = session

    def left(self, view: View) -> frozenset[Site]:
        """Sites of the view that have left without a vote: quorums are counted without them."""
        return frozenset(site for site, session in self._left.items() if view.sessions.get(site) == session)

    def on_request(self, sender: Site, pdu: Heartbeat, view: View) -> bool:
        """Note the record that a site asks for; whether the view has to change for it."""
        wanted = SiteRecord(sender, pdu.session, pdu.serial, tuple(sorted(set(pdu.groups))))
        if sender in view.sessions and view.sessions[sender] < pdu.session:
            self._without_memory.add(sender)
        known = self._requests.get(sender)
        if known is not None and (known.session, known.serial) >= (wanted.session, wanted.serial):
            return True
        if not _is_newer(wanted, view.records.get(sender)):
            return False
        if not view.has_room(wanted, self._requests.values()):  # which bounds the requests too
            return False
        self._requests[sender] = wanted
        return True

    def drop_stale(self, now: Nanoseconds, view: View) -> None:
        """Drop the requests of newcomers that have fallen silent."""
        stale = [site for site in self.newcomers(view) if self.is_silent(now, site, 0)]
        for site in stale:
            del self._requests[site]

    @property
    def requests(self) -> Mapping[Site, SiteRecord]:
        """The records that sites ask for and the view does not have."""
        return self._requests

    def wanted(self) -> dict[Site, SiteRecord]:
        """The records that the next view should have: those that sites ask for, or were granted."""
        return self.granted | self._requests

    def newcomers(self, view: View) -> Iterable[Site]:
        """Sites that ask to be let in, for the first time or in a new session."""
        return (site for site, record in self._requests.items() if view.sessions.get(site) != record.session)

    # What follows from it

    def coordinator(self, now: Nanoseconds, view: View) -> Site:
        """The site that coordinates; if it is found silent, the next one."""
        for site in sorted(view.sessions):
            if site == self._site:
                break
            if site in self._suspected or site in self._without_memory or site in self._left:
                continue  # a site without memory is alive, but coordinates nothing
            if site == self._coordinator and self.is_silent(now, site, self._since_ns):
                self._suspected.add(site)
                continue
            self._turn_to(now, site)
            return site
        self._turn_to(now, self._site)
        return self._site

    def _turn_to(self, now: Nanoseconds, site: Site) -> None:
        if site != self._coordinator:
            self._coordinator = site
            self._since_ns = now

    def with_memory(self, view: View) -> frozenset[Site]:
        """Sites that may still tell what they know of the current view: their session is not over."""
        return frozenset(view.sessions) - self._without_memory - self._left.keys()

    def unsuspected(self, now: Nanoseconds, view: View) -> frozenset[Site]:
        """Those of them that are not suspected; the coordinator suspects all silent sites."""
        silent = self.suspected(now, view.sessions) if self._coordinator == self._site else self._suspected
        return self.with_memory(view) - silent

    def is_silent(self, now: Nanoseconds, site: Site, since_ns: Nanoseconds) -> bool:
        """Whether a site has sent nothing for longer than `suspect_ns`, counted from `since_ns` at most."""
        return now - max(since_ns, self._last_heard_ns.get(site, since_ns)) > self._suspect_ns

    def heard_all(self, view: View, since_ns: Nanoseconds) -> bool:
        """Whether every other site of the view has sent something since then."""
        return all(
            site == self._site or self._last_heard_ns.get(site, since_ns) > since_ns for site in view.sessions
        )

    def suspected(self, now: Nanoseconds, sites: Iterable[Site]) -> frozenset[Site]:
        """Those of these sites that the coordinator suspects; it monitors all sites."""
        return frozenset(
            site
            for site in sites
            if site != self._site and (site in self._suspected or self.is_silent(now, site, self._since_ns))
        )


def _is_newer(wanted: SiteRecord, current: SiteRecord | None) -> bool:
    """Whether a site asks for something other than its current record."""
    if current is None or current.session < wanted.session:
        return True
    return current.session == wanted.session and current.serial < wanted.serial
