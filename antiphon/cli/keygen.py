"""`antiphon keygen`: a group key, and the steps by which a group moves to a new one."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from antiphon.cli.console import data, say
from antiphon.core.errors import UsageError
from antiphon.live.keys import KeyRing, keys_text, read_keys, replace_keys, write_keys


def keygen(
    file: Annotated[Path | None, Parameter(help="the key file; without it a key is printed")] = None,
    *,
    add: Annotated[
        bool, Parameter(help="add a new key that opens but does not seal yet", negative=())
    ] = False,
    promote: Annotated[bool, Parameter(help="let the key added last seal from now on", negative=())] = False,
    retire: Annotated[bool, Parameter(help="drop every key but the one that seals", negative=())] = False,
) -> int:
    """Make a group key, or change the keys in a file; nothing is ever overwritten.

    To move a group to a new key: add it at one member, copy the file to all and restart them one by one;
    do the same after `--promote`, and again after `--retire`.

    Example: antiphon keygen group.key
    """
    if add + promote + retire > 1:
        raise UsageError("One step at a time: --add, --promote or --retire.")
    if file is None:
        if add or promote or retire:
            raise UsageError("Which key file?", hint="antiphon keygen FILE --add")
        data.print(keys_text(KeyRing.generate()), end="", markup=False)
        return 0
    if not (add or promote or retire):
        write_keys(file, KeyRing.generate())
        say(f"A new group key is in {file}; give a copy to every member only.")
        return 0
    ring = read_keys(file)
    changed = ring.added() if add else ring.promoted() if promote else ring.retired()
    replace_keys(file, changed)
    say(_told(file, changed, add=add, promote=promote))
    return 0


def _told(file: Path, ring: KeyRing, *, add: bool, promote: bool) -> str:
    count = f"{file} now has {len(ring.keys)} key{'s' if len(ring.keys) > 1 else ''}"
    if add:
        return f"{count}; the new one opens but does not seal. When all members run with it: --promote."
    if promote:
        return f"{count}; the newest seals. When all members run with it: --retire."
    return f"{count}. When all members run with it, the old keys no longer open anything."
