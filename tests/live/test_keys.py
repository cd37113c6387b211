"""Keys: their files, the command that makes them, what is derived from them, and the replay window."""

import base64
import hashlib
import hmac
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.main import run
from antiphon.core.errors import AntiphonError, InputError, OutputError, UsageError
from antiphon.live.keys import (
    MOST_KEYS,
    KeyFile,
    KeyRing,
    keys_text,
    parse_keys,
    read_keys,
    replace_keys,
    write_keys,
)
from antiphon.live.sealing import (
    GENERATION_BITS,
    KEY_LIFE_NS,
    MOST_SEALS,
    PDUS_PER_KEY,
    TAG_BYTES,
    WINDOW,
    ReplayWindow,
    Seals,
    SendingKey,
)

Capture = pytest.CaptureFixture[str]
KEY = base64.b64encode(b"k" * 32).decode()
NO_SALT = bytes(hashlib.sha256().digest_size)


@pytest.mark.parametrize(
    "keys", [(), (b"short",), (b"k" * 32, b"k" * 32), tuple(bytes([n]) * 32 for n in range(9))]
)
def test_a_ring_has_a_few_different_keys_of_the_right_length(keys: tuple[bytes, ...]) -> None:
    with pytest.raises(UsageError):
        KeyRing(keys)


def test_a_ring_does_not_show_its_keys() -> None:
    ring = KeyRing((b"secret-" * 4 + b"1234",))
    assert "secret" not in repr(ring) + str(ring)


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=MOST_KEYS, unique=True))
def test_a_file_s_text_holds_the_ring(keys: list[bytes]) -> None:
    ring = KeyRing(tuple(keys))
    assert parse_keys(keys_text(ring), "here") == ring


def test_comments_blank_lines_and_foreign_line_ends_are_fine() -> None:
    text = f"# ours\r\n\r\n  {KEY}   # the first\r\n"
    assert parse_keys(text, "here").keys == (b"k" * 32,)


@given(st.text(max_size=100))
def test_what_is_no_key_is_told_without_showing_it(text: str) -> None:
    try:
        parse_keys(text, "here")
    except AntiphonError as error:
        shown = error.sentence + (error.hint or "")
        assert not any(word in shown for word in text.split() if len(word) > 20)
    else:
        pytest.fail("no key, but taken")


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "not base64!\n", f"{KEY[:-4]}\n", f"{KEY}\n{KEY}\n", f"{KEY} {KEY}\n"]
)
def test_bad_key_files_are_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InputError) as caught:
        read_keys(path)
    assert str(path) in caught.value.sentence
    assert KEY[:20] not in caught.value.sentence


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    write_keys(path, KeyRing.generate())
    path.chmod(mode)
    with pytest.raises(InputError, match="Others may read") as caught:
        read_keys(path)
    assert "chmod 600" in (caught.value.hint or "")


def test_files_that_are_not_there_or_no_text_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_keys(tmp_path / "none")
    with pytest.raises(InputError, match="cannot be read"):
        read_keys(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "binary").chmod(0o600)
    with pytest.raises(InputError, match="it is not text"):
        read_keys(tmp_path / "binary")


def test_a_key_file_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key"
    before = os.umask(0)
    try:
        write_keys(path, KeyRing.generate())
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    with pytest.raises(UsageError, match="is lost"):
        write_keys(path, KeyRing.generate())
    assert path.read_text() == text
    with pytest.raises(OutputError):
        write_keys(tmp_path / "no" / "folder", KeyRing.generate())
    with pytest.raises(OutputError):
        replace_keys(tmp_path / "no" / "folder", KeyRing.generate())


def test_keygen_makes_a_key_and_leads_through_a_rotation(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "group.key"
    assert run(["keygen", str(path)]) == 0
    (first,) = read_keys(path).keys
    assert run(["keygen", str(path), "--add"]) == 0
    both = read_keys(path).keys
    assert both[0] == first
    assert run(["keygen", str(path), "--promote"]) == 0
    assert read_keys(path).keys == both[::-1]
    assert run(["keygen", str(path), "--retire"]) == 0
    assert read_keys(path).keys == both[1:]
    assert path.stat().st_mode & 0o777 == 0o600
    out, err = capsys.readouterr()
    assert out == ""
    assert not any(base64.b64encode(key).decode() in err for key in both)
    assert [each.name for each in tmp_path.iterdir()] == ["group.key"]


def test_keygen_prints_a_key_without_a_file_and_refuses_what_makes_no_sense(
    capsys: Capture, tmp_path: Path
) -> None:
    assert run(["keygen"]) == 0
    assert len(parse_keys(capsys.readouterr().out, "here").keys) == 1
    path = tmp_path / "key"
    assert run(["keygen", "--add"]) == 2
    assert run(["keygen", str(path), "--add"]) == 2
    assert run(["keygen", str(path)]) == 0
    assert run(["keygen", str(path)]) == 2
    assert run(["keygen", str(path), "--add", "--retire"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "One step at a time" in err
    for _ in range(MOST_KEYS - 1):
        assert run(["keygen", str(path), "--add"]) == 0
    assert run(["keygen", str(path), "--add"]) == 2
    assert len(read_keys(path).keys) == MOST_KEYS


def test_a_key_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path, first = tmp_path / "key", KeyRing((b"1" * 32,))
    write_keys(path, first)
    file = KeyFile(path)
    assert file.ring == first
    assert file.look() is None
    both = first.added()
    replace_keys(path, both)
    assert file.look() == both == file.ring
    assert file.look() is None
    path.write_text("# a comment more\n" + path.read_text())
    assert file.look() is None, "the keys are the same"


def test_a_key_file_that_could_not_be_read_for_a_while_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with too many open files: the file itself does not change again."""
    path, first = tmp_path / "key", KeyRing((b"1" * 32,))
    write_keys(path, first)
    file = KeyFile(path)
    replace_keys(path, both := first.added())

    def full(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(InputError, match="Too many open files"):
            file.look()
        assert file.look() is None, "the reason is told once"
    assert file.look() == both == file.ring


def test_a_key_file_that_has_gone_bad_is_told_once_and_the_ring_stays(tmp_path: Path) -> None:
    path, first = tmp_path / "key", KeyRing((b"1" * 32,))
    write_keys(path, first)
    file = KeyFile(path)
    path.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        file.look()
    assert file.look() is None
    write_keys(path, first.added())
    path.chmod(0o644)
    with pytest.raises(InputError, match="Others may read"):
        file.look()
    assert (file.look(), file.ring) == (None, first)
    path.chmod(0o600)
    assert file.look() == file.ring != first


def test_a_pipe_in_the_place_of_a_key_file_makes_no_member_wait(tmp_path: Path) -> None:
    """Opening it would block until something is written to it."""
    path, first = tmp_path / "key", KeyRing((b"1" * 32,))
    write_keys(path, first)
    file = KeyFile(path)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(InputError, match="is no longer a regular file"):
        file.look()
    assert (file.look(), file.ring) == (None, first)
    with pytest.raises(InputError, match="There is no key in"):
        KeyFile(path)


def test_keys_come_through_a_pipe_once() -> None:
    """As from a command: --key <(pass show group)."""
    ring = KeyRing((b"1" * 32,))
    reading, writing = os.pipe()
    try:
        os.write(writing, keys_text(ring).encode())
        os.close(writing)
        file = KeyFile(Path(f"/dev/fd/{reading}"))
        assert file.ring == ring
        os.utime(reading)
        assert file.look() is None
    finally:
        os.close(reading)


# Sealing


def hkdf(key: bytes, salt: bytes, info: bytes) -> bytes:
    """RFC 5869 by hand, for one block."""
    return hmac.digest(hmac.digest(salt, key, "sha256"), info + b"\x01", "sha256")


def test_seals_are_derived_as_documented() -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key, boot = b"g" * 32, 0x0123456789ABCDEF
    seals = Seals(KeyRing((key,)), "orders")
    for generation in (0, 1, 2**32 - 1):
        seal = seals.own(boot, generation)
        assert seal.generation == generation
        salt = boot.to_bytes(8, "big") + generation.to_bytes(4, "big")
        derived = hkdf(key, salt, b"antiphon seal orders")
        assert seal.seal(5, b"head", b"body") == AESGCM(derived).encrypt(
            bytes(4) + (5).to_bytes(8, "big"), b"body", b"head"
        )
        naming = hkdf(key, NO_SALT, b"antiphon key id orders")
        name = hmac.digest(naming, salt, "sha256")[:4]
        assert seal.identifier == int.from_bytes(name, "big")
        stream = hashlib.shake_128(hkdf(derived, NO_SALT, b"antiphon fragments") + (5).to_bytes(8, "big"))
        assert seal.tokens(5, 42) == stream.digest(42 * 8)


def test_a_seal_opens_only_what_was_sealed_with_all_the_same() -> None:
    seals = Seals(KeyRing((b"1" * 32, b"2" * 32)), "orders")
    seal = seals.own(7)
    sealed = seal.seal(1, b"head", b"body")
    assert seal.open(1, b"head", sealed) == b"body"
    assert seal.open(2, b"head", sealed) is None
    assert seal.open(1, b"Head", sealed) is None
    assert seal.open(1, b"head", sealed[:-1]) is None
    assert seal.open(1, b"head", b"") is None
    assert seals.own(8).open(1, b"head", sealed) is None
    assert Seals(KeyRing((b"1" * 32,)), "order").own(7).open(1, b"head", sealed) is None
    found = Seals(KeyRing((b"2" * 32, b"1" * 32)), "orders").find(7, seal.identifier)
    assert found is not None
    assert found.open(1, b"head", sealed) == b"body"
    assert seals.find(7, seal.identifier ^ 1) is None
    assert seals.find(8, seal.identifier) is None


def test_seals_of_generations_and_places_are_not_mixed_up() -> None:
    seals = Seals(KeyRing((b"1" * 32, b"2" * 32)), "orders")
    sealed = seals.own(7, 1).seal(1, b"head", b"body")
    assert seals.own(7, 0).open(1, b"head", sealed) is None
    assert seals.find(7, seals.own(7, 1).identifier, 0) is None
    found = seals.find(7, seals.own(7, 1).identifier, 1)
    assert found is seals.own(7, 1)
    assert [each.identifier for each in seals.every(7, 1)] == [
        Seals(ring, "orders").own(7, 1).identifier for ring in (KeyRing((b"1" * 32,)), KeyRing((b"2" * 32,)))
    ]


def test_what_is_shorter_than_a_tag_opens_nothing() -> None:
    seal = Seals(KeyRing((b"1" * 32,)), "orders").own(7)
    empty = seal.seal(1, b"head", b"")
    assert len(empty) == TAG_BYTES
    assert seal.open(1, b"head", empty) == b""
    assert seal.open(1, b"head", empty[:-1]) is None


def test_a_seal_is_made_only_where_it_is_allowed_and_then_kept() -> None:
    seals, other = (Seals(KeyRing((b"1" * 32,)), "orders") for _ in range(2))
    identifier = other.own(7).identifier
    assert seals.find(7, identifier, 0, lambda: False) is None
    assert seals.find(7, identifier + 1, 0, unasked) is None
    made = seals.find(7, identifier, 0, lambda: True)
    assert made is not None
    assert seals.find(7, identifier, 0, unasked) is made


def unasked() -> bool:
    pytest.fail("asked for a seal that is there, or that no process has")


def test_the_seals_that_are_kept_are_bounded_and_go_with_their_ring() -> None:
    seals = Seals(KeyRing((b"1" * 32,)), "orders")
    for boot in range(MOST_SEALS + 3):
        seals.own(boot)
    assert len(seals._made) == MOST_SEALS
    before = seals.own(7)
    seals.replace(KeyRing((b"2" * 32, b"1" * 32)))
    assert seals.own(7).identifier != before.identifier
    assert seals.find(7, before.identifier) is not None
    seals.replace(KeyRing((b"2" * 32,)))
    assert seals.find(7, before.identifier) is None


def test_tokens_are_of_one_boot_one_generation_and_one_pdu() -> None:
    seals = Seals(KeyRing((b"1" * 32,)), "orders")
    tokens = seals.own(7).tokens(5, 42)
    assert len({tokens[place : place + 8] for place in range(0, len(tokens), 8)}) == 42
    assert tokens == seals.own(7).tokens(5, 43)[: len(tokens)]
    for other in (seals.own(7).tokens(6, 42), seals.own(8).tokens(5, 42), seals.own(7, 1).tokens(5, 42)):
        assert other != tokens


# The key that a process sends with


def test_a_key_seals_only_so_many_pdus() -> None:
    key = SendingKey(Seals(KeyRing((b"1" * 32,)), "orders"), 7, now=0)
    assert PDUS_PER_KEY == 1 << GENERATION_BITS
    first = key.seal
    assert key.advance(0) == 1
    assert key.advance(PDUS_PER_KEY - 2) == PDUS_PER_KEY - 1
    assert key.seal is first
    assert key.sealed(PDUS_PER_KEY - 1) == PDUS_PER_KEY - 1
    assert key.advance(PDUS_PER_KEY - 1) == PDUS_PER_KEY
    assert key.seal.generation == 1
    assert key.sealed(PDUS_PER_KEY) == 1


def test_a_key_is_used_only_for_so_long() -> None:
    key = SendingKey(Seals(KeyRing((b"1" * 32,)), "orders"), 7, now=1000)
    assert key.renew(5, 1000 + KEY_LIFE_NS - 1) == 5
    assert (key.seal.generation, key.age_ns(1000 + KEY_LIFE_NS - 1)) == (0, KEY_LIFE_NS - 1)
    assert key.sealed(5) == 5
    counter = key.renew(5, 1000 + KEY_LIFE_NS)
    assert key.advance(counter) == PDUS_PER_KEY
    assert (key.seal.generation, key.age_ns(1000 + KEY_LIFE_NS)) == (1, 0)
    assert key.sealed(counter) == 0
    assert key.sealed(counter + 3) == 3
    assert key.renew(counter, 1000 + KEY_LIFE_NS + 1) == counter
    assert key.age_ns(0) == 0, "clocks differ a little"


def test_another_ring_s_key_counts_anew_and_no_counter_repeats() -> None:
    seals = Seals(KeyRing((b"1" * 32,)), "orders")
    key = SendingKey(seals, 7, now=0)
    seals.replace(KeyRing((b"2" * 32, b"1" * 32)))
    key.replace(50, now=9)
    assert key.seal is seals.own(7)
    assert (key.sealed(50), key.sealed(53), key.age_ns(10)) == (0, 3, 1)
    assert key.advance(50) == 51
    key.replace(PDUS_PER_KEY - 1, now=9)
    assert key.seal.generation == 1


def test_what_is_too_late_to_tell_counts_as_seen() -> None:
    window = ReplayWindow(0)
    window.note(2 * WINDOW)
    assert window.is_new(WINDOW + 1)
    assert not window.is_past(WINDOW + 1)
    assert not window.is_new(WINDOW)
    assert window.is_past(WINDOW)
    window.note(3 * WINDOW - 1)
    assert not window.is_new(2 * WINDOW), "seen, and still within the window"
    assert window.is_new(2 * WINDOW + 1)
    window.note(4 * WINDOW - 1)
    assert not window.is_new(3 * WINDOW - 1)
    assert window.is_new(3 * WINDOW)


COUNTERS = st.integers(0, 3 * WINDOW) | st.integers(0, 2**64 - 1) | st.integers(WINDOW - 3, WINDOW + 3)


@given(st.integers(-1, 2 * WINDOW), st.lists(COUNTERS, max_size=40))
def test_the_window_does_what_a_set_would(top: int, counters: list[int]) -> None:
    window, seen, newest = ReplayWindow(top), set(range(top + 1)), top
    for counter in counters:
        expected = counter > newest or (counter > newest - WINDOW and counter not in seen)
        assert window.is_new(counter) == expected
        if expected:
            window.note(counter)
            seen.add(counter)
            newest = max(newest, counter)
            assert not window.is_new(counter)
