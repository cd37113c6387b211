"""The values in the trace's third table, `calls`: JSON, with bytes as `{"$bytes": "…"}` in base64."""

import base64
import json
from typing import Any, Final

from antiphon.core.values import Value

BYTES: Final = "$bytes"


def value_text(value: Value) -> str:
    """A value as JSON."""
    return json.dumps(value, default=_encoded, separators=(",", ":"), ensure_ascii=False)


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {BYTES: base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} is no plain data")


def text_value(text: str) -> Value:
    """The value of a JSON text; ValueError if it is none."""
    found: Value = json.loads(text, object_hook=_decoded)
    return found


def _decoded(value: dict[str, Any]) -> Any:
    if list(value) == [BYTES] and isinstance(value[BYTES], str):
        return base64.b64decode(value[BYTES])
    return value
