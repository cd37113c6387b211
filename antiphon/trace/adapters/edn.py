"""EDN, as far as Jepsen's histories use it: maps, vectors, lists, sets, keywords, strings, numbers, nil.

Keywords become strings without their colon. Tagged values (`#inst "…"`) become the value behind the tag.
"""

import re
from typing import Any, Final

_TOKEN: Final = re.compile(
    r'[\s,]*(?:;[^\n]*)?[\s,]*(?P<token>"(?:\\.|[^"\\])*"|\#\{|[{}\[\]()]|\#[^\s,{}\[\]()"]*|[^\s,{}\[\]()"]+)'
)
_CLOSING: Final = {"{": "}", "[": "]", "(": ")", "#{": "}"}
MOST_DEPTH: Final = 60
"""Nesting that is read; a history has three levels. Raising it risks the stack."""


def loads(text: str) -> Any:
    """One EDN value; ValueError if the text is anything else.

    >>> loads("{:type :ok, :f :read, :value [1 2], :process 0}")
    {'type': 'ok', 'f': 'read', 'value': [1, 2], 'process': 0}
    """
    tokens = _tokens(text)
    value = _value(tokens, 0)
    if tokens:
        raise ValueError(f"something stands behind the value: {tokens[-1]!r}")
    return value


def _tokens(text: str) -> list[str]:
    """The tokens, last first, so that the next one is popped."""
    found: list[str] = []
    place, end = 0, len(text.rstrip(" \t\r\n,"))
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            raise ValueError(f"unreadable from {text[place : place + 20]!r} on")
        found.append(match["token"])
        place = match.end()
    return found[::-1]


def _value(tokens: list[str], depth: int) -> Any:
    if not tokens or depth > MOST_DEPTH:
        raise ValueError("the value ends early" if not tokens else "nested too deeply")
    token = tokens.pop()
    if token in _CLOSING:
        return _collection(token, tokens, depth)
    if token.startswith("#"):
        return _value(tokens, depth + 1)
    return _atom(token)


def _collection(opening: str, tokens: list[str], depth: int) -> Any:
    items: list[Any] = []
    while tokens and tokens[-1] != _CLOSING[opening]:
        items.append(_value(tokens, depth + 1))
    if not tokens:
        raise ValueError("the value ends early")
    tokens.pop()
    if opening != "{":
        return items
    if len(items) % 2:
        raise ValueError("a map has a key without a value")
    return {str(key): value for key, value in zip(items[::2], items[1::2], strict=True)}


def _atom(token: str) -> Any:
    if token in ("nil", "true", "false"):
        return {"nil": None, "true": True, "false": False}[token]
    if token.startswith('"'):
        return re.sub(r"\\(.)", r"\1", token[1:-1])
    for convert in (int, float):
        try:
            return convert(token.removesuffix("N").removesuffix("M"))
        except ValueError:
            continue
    if token in "})]":
        raise ValueError(f"unexpected {token!r}")
    return token.removeprefix(":")
