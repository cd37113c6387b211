"""Which expressions judge what a peer has sent: what `python -m tests.mutants --only validation` changes.

These do:

- all of a module that does nothing else (`READERS`), and the bounds of all fields;
- all of a function that by its annotations takes a PDU, a part of a PDU or what brings one, or whose name
  says that it reads (`READING`);
- of a function that such a function hands something of its PDU: what mentions it.

Annotations are followed through imports, aliases and quotes, calls by the function's name. What a PDU left in
a member's state is not followed, nor what is handed on a second time.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

READERS: Final = frozenset(
    {
        "validation.py", "coding.py", "credible.py", "reports.py", "pdus.py", "tag_lists.py", "vectors.py",
        "wire.py", "packing.py", "fields.py", "gate.py", "admission.py", "challenges.py", "moves.py",
        "own_name.py", "fragments.py", "fragment_reader.py", "handshake.py", "sealing.py", "peer.py",
    }
)  # fmt: skip
"""Modules of which all reads what a peer has sent."""
READING: Final = (
    "receive",
    "heard",
    "on_",
    "make_sense",
    "makes_sense",
    "read",
    "decode",
    "parse",
    "believe",
)
"""How the names of functions begin that do."""
BRING: Final = frozenset({"Received", "Packet", "Arrival", "Head"})
"""Classes of what brings a PDU, or its header."""
OF_CONTAINERS: Final = frozenset(
    name for kind in (set, list, dict) for name in dir(kind) if not name.startswith("_")
)
"""A call of these is rarely one of our own functions."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Place: TypeAlias = tuple[str, str]
"""A module and a name at its top."""


@dataclass(frozen=True)
class Reading:
    """What reads peers' PDUs: whole functions by where they begin, and the parameters of others."""

    whole: frozenset[tuple[str, int]]
    handed: Mapping[tuple[str, int], frozenset[str]]


@dataclass
class _Module:
    """What stands at the top of a module."""

    path: str
    tree: ast.Module
    defined: dict[str, ast.expr | ast.ClassDef] = field(default_factory=dict)
    """Classes and aliases of types."""
    imported: dict[str, Place] = field(default_factory=dict)


@cache
def reading_of(root: Path) -> Reading:
    """What reads peers' PDUs in the package of a tree."""
    modules = {_dotted(path, root): _module(path, root) for path in sorted(root.glob("antiphon/**/*.py"))}
    kinds = _kinds(modules)
    taken: dict[tuple[str, int], tuple[Function, frozenset[str]]] = {}
    by_name: dict[str, list[tuple[_Module, Function]]] = {}
    for name, module in modules.items():
        for node in ast.walk(module.tree):
            if isinstance(node, Function):
                by_name.setdefault(node.name, []).append((module, node))
                read = frozenset(
                    each.arg
                    for each in _parameters(node)
                    if each.annotation is not None
                    and any(_meaning(modules, name, used) & kinds for used in names_in(each.annotation))
                )
                if read or node.name.lstrip("_").startswith(READING):
                    taken[module.path, node.lineno] = node, read
    handed: dict[tuple[str, int], frozenset[str]] = {}
    for (path, _), (function, read) in taken.items():
        for called, parameters in _hands_on(path, function, read, by_name):
            handed[called] = handed.get(called, frozenset()) | parameters
    return Reading(frozenset(taken), {place: names for place, names in handed.items() if place not in taken})


def mentions(node: ast.AST, names: frozenset[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))


def derived(function: Function, names: frozenset[str]) -> frozenset[str]:
    """These names and those of the function's variables that are made of them."""
    found = names - {"self", "now", "_now"}
    while True:
        more = set(found)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and mentions(node.value, found):
                more |= {each.id for target in node.targets for each in _variables(target)}
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                more |= {each.id for each in _variables(node.target) if mentions(node.value, found)}
            elif isinstance(node, ast.For | ast.comprehension) and mentions(node.iter, found):
                more |= {each.id for each in _variables(node.target)}
        if more == found:
            return found
        found = frozenset(more)


def names_in(annotation: ast.AST) -> Iterator[str]:
    """All names in it, those in quotes too."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value


def _variables(target: ast.expr) -> Iterator[ast.Name]:
    if isinstance(target, ast.Name):
        yield target
    elif isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _variables(each)
    elif isinstance(target, ast.Starred):
        yield from _variables(target.value)


def _parameters(function: Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _hands_on(
    path: str, function: Function, read: frozenset[str], by_name: Mapping[str, list[tuple[_Module, Function]]]
) -> Iterator[tuple[tuple[str, int], frozenset[str]]]:
    """The functions that get something of its PDU, with the parameters that get it."""
    names = derived(function, read)
    for call in ast.walk(function):
        if not isinstance(call, ast.Call):
            continue
        called = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
        if called in OF_CONTAINERS:
            continue
        for module, other in by_name.get(called, ()):
            if not _are_near(path, module.path):
                continue
            parameters = [each.arg for each in _parameters(other) if each.arg != "self"]
            pairs = [*zip(parameters, call.args, strict=False)]
            pairs += [(each.arg, each.value) for each in call.keywords if each.arg is not None]
            handed = {parameter for parameter, value in pairs if mentions(value, names)}
            if handed:
                yield (module.path, other.lineno), frozenset(handed)


def _are_near(path: str, other: str) -> bool:
    """Whether a call in one module can well mean a function of the other: one protocol, or what all share."""
    mine, its = Path(path).parts, Path(other).parts
    return mine[:3] == its[:3] or (mine[:2] == its[:2] and (len(its) == 3 or mine[1] == "live"))


def _kinds(modules: Mapping[str, _Module]) -> set[Place]:
    """All PDUs, what brings them, and their parts."""
    classes = {
        (name, each): node
        for name, module in modules.items()
        for each, node in module.defined.items()
        if isinstance(node, ast.ClassDef)
    }
    pdus = {place for place, node in classes.items() if node.name == "Pdu"}
    while more := {place for place in classes.keys() - pdus if _bases(modules, place) & pdus}:
        pdus |= more
    parts = {part for place in pdus for part in _parts(modules, place)}
    return pdus | parts | {place for place, node in classes.items() if node.name in BRING}


def _bases(modules: Mapping[str, _Module], place: Place) -> set[Place]:
    node = modules[place[0]].defined[place[1]]
    assert isinstance(node, ast.ClassDef)
    return {
        base for used in node.bases for name in names_in(used) for base in _meaning(modules, place[0], name)
    }


def _parts(modules: Mapping[str, _Module], place: Place) -> set[Place]:
    """The structs in the fields of a PDU, and in theirs."""
    node = modules[place[0]].defined[place[1]]
    assert isinstance(node, ast.ClassDef)
    fields = [line.annotation for line in node.body if isinstance(line, ast.AnnAssign)]
    used = {each for annotation in fields for each in names_in(annotation)}
    found = {part for each in used for part in _meaning(modules, place[0], each)}
    structs = {part for part in found if _is_struct(modules[part[0]].defined[part[1]])}
    return structs.union(*(_parts(modules, part) for part in structs))


def _is_struct(node: ast.expr | ast.ClassDef) -> bool:
    return isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Struct") for base in node.bases)


def _meaning(modules: Mapping[str, _Module], name: str, used: str) -> set[Place]:
    """What a name means in a module: a class, or what an alias is made of."""
    module = modules.get(name)
    if module is None:
        return set()
    if used in module.imported:
        return _meaning(modules, *module.imported[used]) if module.imported[used] != (name, used) else set()
    node = module.defined.get(used)
    if node is None:
        return set()
    found = {(name, used)}
    if not isinstance(node, ast.ClassDef):
        for each in names_in(node):
            found |= _meaning(modules, name, each) if each != used else set()
    return found


def _module(path: Path, root: Path) -> _Module:
    module = _Module(str(path.relative_to(root)), ast.parse(path.read_text()))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                module.imported[each.asname or each.name] = node.module, each.name
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            module.defined[node.name] = node
        elif isinstance(node, ast.AnnAssign) and "TypeAlias" in names_in(node.annotation):
            assert isinstance(node.target, ast.Name)
            assert node.value is not None
            module.defined[node.target.id] = node.value
    return module


def _dotted(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
