"""Sharing a countable resource: exclusive control of its units goes from member to member by messages.

Source: J. Konorski, Membership-insensitive totally ordered group transport, section 2: the framework of
request, allocation and release messages, requests served first in first out at each site, and a time-out
after which a site that has not got enough units gives back what it has collected and requests anew.

Each member keeps a replica of the controllers of all units and of the queue of requests, and changes it only
by delivered messages (`replica.py`). A member that controls units which it does not need gives them to the
first request in its own replica (`sharer.py`). An allocation counts the transfers of each unit, and a replica
believes it only if it counts further than what it knows. The user of a member asks with `Want`, gets
`Granted` when it may operate, and answers `Done`.

Assumes: a group that delivers the messages of all members, a member's own included, in one agreed order, and
each sender's in its own order. Members may vanish and return silently; no member keeps track of the others.
An operation takes at most `operation_ns`, and no member delivers a message, or answers it, more than
`slack_ns` later than another. If all members that know of a unit vanish at the same time, it is lost.

Guarantees, with agreed order: replicas that have delivered the same are equal, and no two members control a
unit at the same time. Only the first request collects, so there is no deadlock.

What messages out of order cost. Control itself does not depend on the order while no member vanishes: only
the member that controls a unit can pass it on, once, whatever the others believe. Replicas of the queue do. A
member that has seen two requests in the opposite order gives its units to the second while the others give
theirs to the first: both collect, neither may ever have enough, and the units lie idle until one of them
gives up by its time-out. A member that has not seen an allocation gives one unit too many, which then travels
once more. A member that sees its own allocation late begins late. When units of vanished members are claimed,
the order decides between two claims of one unit, so there messages out of order may break exclusiveness too.

Deviations, where the source is silent:
- Of several members with idle units, only as many give as are needed: idle units, by number, are matched with
  requests in order of arrival, and each member gives its own matched units. Replicas that agree match alike.
- A release and the allocations that follow from it travel together: if a member waited for the delivery of
  its own release, the units would lie idle longer.
- A member that should have given or released a unit by now has vanished. The first in line takes the unit: it
  multicasts an allocation to itself. The request that the unit was collected for ends.
- A member that returns has forgotten everything. It multicasts a release of all that it may have had, and
  learns from what is delivered after that.
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
