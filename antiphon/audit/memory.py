"""Whether a run fits into memory: known from its files' metadata, before a row is read."""

from typing import Final

from antiphon.core.errors import InputError
from antiphon.core.memory import memory_bytes

ROW_BYTES: Final = 50
"""Memory that judging a row in one piece takes at least. Raising it refuses runs that would still fit."""


def too_large(what: str, rows: int, way: str, hint: str) -> InputError | None:
    """The error for rows that cannot be judged together in this machine's memory; None if they can."""
    needed, available = rows * ROW_BYTES, memory_bytes()
    if needed <= available:
        return None
    return InputError(
        f"{what} has {rows:,} rows: judged {way}, it takes at least {_gigabytes(needed)}, and this machine "
        f"has {_gigabytes(available)}.",
        hint,
    )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
