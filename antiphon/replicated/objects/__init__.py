"""Ready-made replicated objects: a pure machine and a thin handle in each module.

A group holds any number of them by name: its machine is `Objects`, which routes a command to the object that
it names. A handle, such as `Map(shop, "prices")`, turns methods into commands.
"""

from antiphon.replicated.objects.barrier import Barrier
from antiphon.replicated.objects.counter import Counter
from antiphon.replicated.objects.leader import Leader, Leadership
from antiphon.replicated.objects.lock import Lock, LockLostError, Semaphore
from antiphon.replicated.objects.map import Change, Map
from antiphon.replicated.objects.queue import Item, Queue
from antiphon.replicated.objects.registry import Objects
from antiphon.replicated.objects.set import Set

__all__ = [
    "Barrier",
    "Change",
    "Counter",
    "Item",
    "Leader",
    "Leadership",
    "Lock",
    "LockLostError",
    "Map",
    "Objects",
    "Queue",
    "Semaphore",
    "Set",
]
