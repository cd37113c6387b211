"""What tests of liars in a Distributed Precedence Graph group share."""

from typing import Any

from antiphon.core.wire import Pdu
from antiphon.protocols.dpg.pdus import Report
from antiphon.protocols.dpg.tag_lists import pack_tags

EMPTY = Report(0, 1, 0, 0, 0, b"", b"", b"", b"", b"", 0, False, {}, b"")


def changed(pdu: Pdu, **fields: Any) -> Any:
    return type(pdu)(**({name: getattr(pdu, name) for name in pdu.__struct_fields__} | fields))


def report(tags: list[int], index: int | None = None, **fields: Any) -> Report:
    """A report whose sender has agreed on these tags."""
    told = {
        "agreed": pack_tags(tags),
        "links": bytes(len(tags)),
        "index": len(tags) if index is None else index,
    }
    return changed(EMPTY, **(told | fields))  # type: ignore[no-any-return]
