"""What a replicated machine must have, and what it may have.

A machine is the application's own state. Every replica holds a copy of it and calls its
methods in the same order with the same arguments. A machine must therefore be deterministic: its
state and its results may depend on nothing but the calls made. It reads no clock, no random
generator and no file, and it does not iterate over a `set` of strings.

A command is plain data, which MessagePack carries: None, numbers, texts, bytes, lists and dictionaries.
Tuples arrive as lists.
"""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Machine(Protocol):
    """The three methods that every machine has.

    It may have more, which are called at the same place of the order on every replica:

    - `apply_from(command, caller)`, instead of `apply`, for machines that must know which member calls;
    - `departed(member)`, when the group has agreed that a member is gone, or that its past life is;
    - `tick(time_ns)`, the group's clock, agreed upon. It begins with the first leader's time of day, in
      nanoseconds since 1970, and goes on by the leaders' steady clocks: a clock that is set back, or years
      ahead, neither stops it nor makes it leap. It never goes back, and is
      called only while the attribute `wants_ticks`, which must depend on the state alone, is true.
    """

    def apply(self, command: Any, /) -> Any:
        """Carry out one command and return its result.

        An exception is the result of this command: it is raised at the caller, and the replicas go
        on. The machine must leave the same state behind on every replica in this case too."""
        ...

    def snapshot(self) -> bytes:
        """The whole state."""
        ...

    def restore(self, data: bytes, /) -> None:
        """Replace the whole state by one that `snapshot` returned, here or on another replica."""
        ...
