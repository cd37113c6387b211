"""Sharing a countable resource: exclusive control of its units goes from member to member by messages.

Source: J. Konorski, Membership-insensitive totally ordered group transport, section 2: the framework of
request, allocation and release messages, requests served first in first out at each site, and a time-out
after which a site that has not got enough units gives back what it has collected and requests anew.

Each member keeps a replica of who controls which unit and of the queue of requests, and changes it by
delivered messages alone (`replica.py`). Whoever controls units that it does not need gives them to the
request that its own replica puts first (`sharer.py`). An allocation counts the transfers of each unit, and a
replica believes it only if it counts further than what it knows. A member says what it wants with `Want`, is
told `Granted` when it may operate, and says `Done`.

Assumes: a group that delivers everyone's messages, a member's own included, in one agreed order, and each
sender's in its own order. Members may vanish and return without a word; nobody keeps track of who is there.
An operation takes at most `operation_ns`, and no member delivers a message, or answers it, more than
`slack_ns` later than another. Not all who know of a unit vanish at the same time, or the unit is lost.

Guarantees, with agreed order: replicas that have delivered the same are the same, and no two members control
a unit at the same time. Only the first request collects, so that nothing waits in a circle.

What messages out of order cost. Control itself does not depend on the order while nobody vanishes: only
whoever controls a unit can pass it on, once, whatever the others believe. Views of the queue do. A member
that has seen two requests the other way round gives its units to the second while the others give theirs to
the first: both collect, neither may ever have enough, and what they have lies idle until one of them gives up
by its time-out. A member that has not seen an allocation gives a unit too many, which then travels once more.
A member that sees its own allocation late begins late. When units of vanished members are claimed, the
order decides between two who claim the same one, so there messages out of order may break exclusiveness too.

Deviations, where the source is silent:
- Of several members with idle units only those are to give that are needed: idle units, by number, are
  matched with requests in order of arrival, and each member gives what is its own in that. All replicas that
  agree match alike.
- A release and the allocations that follow from it travel together: waiting for one's own release would only
  make the units lie idle longer.
- A member that should have given or released a unit by now has vanished. The first in line takes the unit: it
  multicasts an allocation to itself. The request that the unit was collected for goes with it.
- A member that returns has forgotten everything, says so by a release of all that it may have had, and learns
  from what is delivered then.
"""

from antiphon.applications.resource_sharing.messages import Allocation, Release, Request
from antiphon.applications.resource_sharing.replica import Replica
from antiphon.applications.resource_sharing.sharer import (
    Done,
    Granted,
    Revoked,
    Sharer,
    SharingConfiguration,
    TimedOut,
    Want,
)

__all__ = [
    "Allocation",
    "Done",
    "Granted",
    "Release",
    "Replica",
    "Request",
    "Revoked",
    "Sharer",
    "SharingConfiguration",
    "TimedOut",
    "Want",
]
