"""The house's dependency direction: a room imports only the rooms it may touch."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "antiphon"

MAY_TOUCH: dict[str, set[str]] = {
    "core": set(),
    "analysis": {"core"},
    "protocols": {"core", "analysis"},
    "applications": {"core"},
    "sim": {"core", "analysis", "protocols", "applications"},
    "trace": {"core"},
    "check": {"core", "trace"},
    "audit": {"core", "trace", "check"},
    "timing": {"core", "trace"},
    "live": {"core", "analysis", "protocols", "trace"},
    "load": {"core", "live"},
    "replicated": {"core", "protocols", "live", "trace"},
    "sync.py": {"core", "live"},
    "testing": {"core", "live", "replicated"},
    "simulation.py": {"core", "sim", "trace", "check"},
    "spark": {"core", "sim", "trace", "check", "audit", "timing", "live", "sync", "simulation"},
    "studies": {"core", "analysis", "protocols", "sim", "trace", "spark", "simulation"},
    "report": {"core", "trace", "check", "timing", "studies"},
    "cli": {"core", "analysis", "protocols", "sim", "trace", "check", "audit", "live", "load", "spark"}
    | {"applications", "replicated", "report", "simulation", "studies", "timing"},
}

CORE_PACKAGES = {"numpy", "msgspec", "numba"}
"""What core may use beside the standard library; numba only behind `core.compiled`."""


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def nodes(tree: ast.AST, *, for_types: bool) -> Iterator[ast.AST]:
    """Every node of a module; what is imported only for type checking may be left out."""
    for child in ast.iter_child_nodes(tree):
        if for_types or not is_for_types_only(child):
            yield child
            yield from nodes(child, for_types=for_types)


def imports(path: Path, *, for_types: bool = True) -> set[str]:
    """Dotted names of everything that a module imports, wherever in it the import stands."""
    names: set[str] = set()
    for node in nodes(ast.parse(path.read_text()), for_types=for_types):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import; we write absolute ones"
            assert node.module is not None
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def rooms_of(names: set[str]) -> set[str]:
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "antiphon" and len(part) > 1}


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_the_rooms_that_its_own_may_touch(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    if room in ("__init__.py", "__main__.py"):
        return
    assert room in MAY_TOUCH, f"{room} is not in the table of rooms"
    assert rooms_of(imports(path)) - {"__version__"} <= MAY_TOUCH[room] | {room}


def test_core_uses_little_beside_the_standard_library() -> None:
    for path in (PACKAGE / "core").glob("*.py"):
        outside = {name.split(".")[0] for name in imports(path)} - set(sys.stdlib_module_names) - {"antiphon"}
        assert outside <= CORE_PACKAGES, path
        assert "numba" not in outside or path.name == "compiled.py"


def test_protocols_and_applications_read_no_clock_socket_or_global_randomness() -> None:
    forbidden = {"time", "datetime", "socket", "asyncio", "os", "random.random", "threading", "secrets"}
    for room in ("protocols", "applications"):
        for path in (PACKAGE / room).rglob("*.py"):
            assert not imports(path) & forbidden, path


def test_what_drives_a_live_member_has_no_clock_but_its_machines() -> None:
    """Otherwise `antiphon.testing` could not simulate it."""
    for name in ("waits", "fragments", "gate", "group", "inbox", "member", "outbox", "pieces", "transport"):
        assert not imports(PACKAGE / "live" / f"{name}.py") & {"time", "random", "secrets.randbits"}, name


def test_nothing_but_the_spark_room_needs_spark() -> None:
    for path in MODULES:
        if path.relative_to(PACKAGE).parts[0] != "spark":
            assert not any(name.split(".")[0] == "pyspark" for name in imports(path, for_types=False)), path
