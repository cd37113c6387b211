"""Group memberships read from a file: TOML with a list per group, or CSV with a row per group and site."""

import csv
import io
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from antiphon.core.errors import InputError
from antiphon.core.ids import Group, Site

TOML_HINT: Final = 'A table [groups] with a line for each group: A = ["s1", "s2"]'
CSV_HINT: Final = "Each line is a group and a site: A,s1"


def read_membership(path: Path) -> dict[Group, tuple[Site, ...]]:
    """The groups of a file and their sites, all sorted; an error names the line."""
    readers = {".toml": _read_toml, ".csv": _read_csv}
    if path.suffix.lower() not in readers:
        raise InputError(f"{path} is neither TOML nor CSV by its name.", hint="Name it .toml or .csv.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8: byte {error.start} is wrong.") from None
    membership = readers[path.suffix.lower()](path, text)
    if not membership:
        hint = TOML_HINT if path.suffix.lower() == ".toml" else CSV_HINT
        raise InputError(f"{path} names no groups.", hint=hint)
    return {group: tuple(sorted(set(membership[group]))) for group in sorted(membership)}


def _read_toml(path: Path, text: str) -> dict[Group, list[Site]]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is no TOML: {error}.", hint=TOML_HINT) from None
    except RecursionError:
        raise InputError(f"{path} is no TOML that can be read: it nests too deep.", hint=TOML_HINT) from None
    groups = document.get("groups")
    if not isinstance(groups, dict):
        raise InputError(f"{path} has no table [groups].", hint=TOML_HINT)
    for group, sites in groups.items():
        wrong = _wrong_list(group, sites)
        if wrong:
            raise InputError(f"{path}, line {_line_of(text, group)}: {wrong}.", hint=TOML_HINT)
    return groups


def _wrong_list(group: Group, sites: Any) -> str | None:
    """The flaw in a group's members; None if there is none."""
    if not group.strip():
        return "a group has no name"
    if not isinstance(sites, list):
        return f"group {group} is no list of sites"
    for site in sites:
        if not isinstance(site, str) or not site.strip():
            return f"group {group} has the member {site!r}, which is no name"
    return None


def _line_of(text: str, group: Group) -> int:
    """The line that defines a group, as far as the text shows it; else the table's."""
    for name in (re.escape(group), r"\[groups\]"):
        found = re.search(rf"""^[ \t]*(?:\[?groups\.)?["']?{name}""", text, re.MULTILINE)
        if found:
            return text.count("\n", 0, found.start()) + 1
    return 1


def _read_csv(path: Path, text: str) -> dict[Group, list[Site]]:
    membership: dict[Group, list[Site]] = {}
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns = (0, 1)
    is_first = True
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells) or cells[0].startswith("#"):
                continue
            if is_first and sorted(cell.lower() for cell in cells) == ["group", "site"]:
                columns = (0, 1) if cells[0].lower() == "group" else (1, 0)
            elif len(cells) != 2 or not all(cells):
                wrong = f"{len(cells)} cells" if len(cells) != 2 else "an empty cell"
                raise InputError(f"{path}, line {reader.line_num}: {wrong}, not two names.", hint=CSV_HINT)
            else:
                membership.setdefault(cells[columns[0]], []).append(cells[columns[1]])
            is_first = False
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: no CSV ({error}).", hint=CSV_HINT) from None
    return membership
