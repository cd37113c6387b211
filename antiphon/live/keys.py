"""Group keys: rings of them, and the files they live in.

A key file has one key of 32 bytes a line, in base64; '#' begins a comment. The first key seals what a member
sends, and every key opens what it receives, so that a group can move to a new key one member at a time:
`docs/security.md` has the steps. Live members check their file every second and load a change. A
file that others on the machine may read is refused.
"""

import base64
import binascii
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from antiphon.core.errors import InputError, OutputError, UsageError

KEY_BYTES: Final = 32
MOST_KEYS: Final = 8
"""Keys in a ring: each may have to be tried on a stranger's datagram. Raising it costs time under a flood."""
FILE_MODE: Final = 0o600
MAXIMUM_FILE_BYTES: Final = 64 << 10


@dataclass(frozen=True)
class KeyRing:
    """One to eight keys; the first seals, all open."""

    keys: tuple[bytes, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not 1 <= len(self.keys) <= MOST_KEYS:
            raise UsageError(f"A key ring has 1 to {MOST_KEYS} keys, not {len(self.keys)}.")
        if any(len(key) != KEY_BYTES for key in self.keys):
            raise UsageError(
                f"A key has {KEY_BYTES} bytes.",
                hint="Make one with: antiphon keygen FILE, or KeyRing.generate().",
            )
        if len(set(self.keys)) != len(self.keys):
            raise UsageError("A key is twice in a key ring.")

    @classmethod
    def generate(cls) -> "KeyRing":
        """A ring of one new key."""
        return cls((secrets.token_bytes(KEY_BYTES),))

    def added(self) -> "KeyRing":
        """With a new key at the end: it opens, and does not seal yet."""
        return KeyRing((*self.keys, secrets.token_bytes(KEY_BYTES)))

    def promoted(self) -> "KeyRing":
        """With the last key at the front: it seals from now on, and the others still open."""
        return KeyRing((self.keys[-1], *self.keys[:-1]))

    def retired(self) -> "KeyRing":
        """Only the key that seals."""
        return KeyRing(self.keys[:1])


class KeyFile:
    """A key file and the ring that was last read from it."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        # The signature is taken first: a change between the two is found at the next check.
        self._signature = self._sign()
        self._is_pipe: Final = _is_pipe(self._signature)
        """Whether the keys came through a pipe or similar, which yields them once."""
        self.ring = read_keys(path)
        self._is_unread = False
        """Whether the file as it is now could not be read when it was last looked at."""

    def look(self) -> KeyRing | None:
        """The new ring if the file has changed, else None. A bad file raises `InputError`, once for each
        change.

        Only a regular file is read again: a pipe would block the member until something is written to it.
        """
        signature = self._sign()
        is_changed = signature != self._signature
        if self._is_pipe or not (is_changed or self._is_unread):
            return None
        self._signature, self._is_unread = signature, False
        if _is_pipe(signature):
            raise InputError(f"The key file {self.path} is no longer a regular file.", hint="Put it back.")
        try:
            ring = read_keys(self.path)
        except InputError as error:
            # The reason may lie elsewhere, such as too many open files, and pass: read it again, silently.
            self._is_unread = bool(signature)
            if is_changed:
                raise error
            return None
        if ring == self.ring:
            return None
        self.ring = ring
        return ring

    def _sign(self) -> tuple[int, ...]:
        """Values that change with the file; its mode comes last."""
        try:
            found = self.path.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def read_keys(path: Path) -> KeyRing:
    """The keys of a file that only its owner may read."""
    try:
        with path.open("rb") if path.is_file() else _open_pipe(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise InputError(
                    f"Others may read or change the key file {path} (its mode is {mode:04o}).",
                    hint=f"chmod 600 {path}; if it may have been read, make a new key.",
                )
            text = file.read(MAXIMUM_FILE_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(
            f"The key file {path} cannot be read: {why}.", hint=f"antiphon keygen {path}"
        ) from None
    return parse_keys(text, str(path))


def _is_pipe(signature: tuple[int, ...]) -> bool:
    """Whether something other than a regular file is there."""
    return bool(signature) and not stat.S_ISREG(signature[-1])


def _open_pipe(path: Path) -> BinaryIO:
    """Open a file that may be a pipe, without waiting for a writer: such a pipe reads as empty."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(handle, True)
    try:
        return os.fdopen(handle, "rb")
    except OSError:
        os.close(handle)
        raise


def parse_keys(text: str, where: str) -> KeyRing:
    """The keys in a file's text. A line's content never appears in an error: it may be most of a key."""
    keys = []
    for number, line in enumerate(text.splitlines(), start=1):
        word = line.split("#", 1)[0].strip()
        if word:
            keys.append(_decode(word, f"line {number} of {where}"))
    if not keys:
        raise InputError(f"There is no key in {where}.", hint="Make one with: antiphon keygen FILE")
    try:
        return KeyRing(tuple(keys))
    except UsageError as error:
        raise InputError(f"{error.sentence} ({where})", hint=error.hint) from None


def _decode(word: str, where: str) -> bytes:
    try:
        key = base64.b64decode(word, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise InputError(
            f"There is no key on {where}.",
            hint=f"A key is {KEY_BYTES} bytes in base64: antiphon keygen makes one.",
        )
    return key


def keys_text(ring: KeyRing) -> str:
    """A key file's text."""
    lines = [base64.b64encode(key).decode() for key in ring.keys]
    return "\n".join(["# Antiphon group keys: the first seals, all open. Keep this file secret.", *lines, ""])


def write_keys(path: Path, ring: KeyRing) -> None:
    """Write a new key file, readable by its owner alone. An existing file is never overwritten."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    except FileExistsError:
        raise UsageError(
            f"{path} exists, and a key that is overwritten is lost.",
            hint="--add, --promote and --retire change its keys.",
        ) from None
    except OSError as error:
        raise OutputError(f"The key file {path} cannot be written: {error.strerror}.") from None
    _fill(handle, path, ring)


def replace_keys(path: Path, ring: KeyRing) -> None:
    """Replace the ring in a key file. A concurrent reader gets the old file or the new one, whole."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        _fill(handle, beside, ring)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise OutputError(f"The key file {path} cannot be written: {error.strerror}.") from None


def _fill(handle: int, path: Path, ring: KeyRing) -> None:
    try:
        with os.fdopen(handle, "w") as file:
            file.write(keys_text(ring))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise OutputError(f"The key file {path} cannot be written: {error.strerror}.") from None
