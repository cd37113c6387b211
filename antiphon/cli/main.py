"""`antiphon`: finds the verb, runs it, and turns every error into a sentence and an exit code.

Exit codes: 0 all is well; 1 a promise is broken, or runs failed; 2 the input or the call makes no sense, or
the machine lacks something; 130 interrupted.
"""

import difflib
import itertools
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

from cyclopts import App, CycloptsError

from antiphon import __version__
from antiphon.cli.console import print_error, talk
from antiphon.core.compiled import allow_plain
from antiphon.core.errors import AntiphonError, UsageError
from antiphon.core.extras import require_extra
from antiphon.sim.scenarios import find_scenario

OK: Final = 0
UNUSABLE: Final = 2
INTERRUPTED: Final = 130

VERBS: Final = {
    "demo": ("antiphon.cli.demo:demo", "The main job in about a minute."),
    "simulate": ("antiphon.cli.simulate:app", "Seeded runs of a protocol."),
    "sweep": ("antiphon.cli.sweep:sweep", "A paper's study as a Spark job; resumable."),
    "audit": ("antiphon.cli.audit:audit", "Judge traces: was the order kept?"),
    "import": ("antiphon.cli.importing:import_", "Other systems' logs to a trace."),
    "stats": ("antiphon.cli.stats:stats", "What a trace tells about speed: who is slow?"),
    "node": ("antiphon.cli.node:node", "One live member: lines in, deliveries out."),
    "top": ("antiphon.cli.top:top", "All members of a live group on one screen."),
    "perf": ("antiphon.cli.perf:perf", "Live throughput and latency with local members."),
    "kv": ("antiphon.cli.kv:app", "A replicated map, and the replicas that hold it."),
    "lock": ("antiphon.cli.lock:lock", "Run a command while holding a replicated lock."),
    "sequencer": ("antiphon.cli.sequencer:sequencer", "A tag sequencer of its own, for several groups."),
    "keygen": ("antiphon.cli.keygen:keygen", "A group key, and the steps to a new one."),
    "advise": ("antiphon.cli.advise:advise", "Which stability protocol to use, and how."),
    "groups": ("antiphon.cli.groups:groups", "Overlapping groups: their trees, and what a join changes."),
    "reproduce": ("antiphon.cli.reproduce:reproduce", "Every study, the claims' verdicts and the report."),
}
EXTRAS: Final = {
    "demo": ("spark", "report"),
    "simulate": ("sim",),
    "sweep": ("spark",),
    "audit": ("sim",),
    "import": ("trace",),
    "stats": ("trace",),
    "perf": ("sim",),
    "advise": ("sim",),
    "reproduce": ("spark", "report"),
}
"""The optional packages that a verb needs."""


def build(tokens: Sequence[str]) -> App:
    """The command line. A verb's module is loaded when it is used, so `antiphon --help` answers at once."""
    app = App(
        name="antiphon",
        help="Ordered, reliable multicast for Python: run it, prove it, study it.",
        version=__version__,
        help_format="markdown",
        suppress_keyboard_interrupt=False,
    )
    for place, (verb, (where, summary)) in enumerate(VERBS.items()):
        # A summary given here would hide the verb's own help, so only the list of verbs gets it.
        described = None if list(tokens[:1]) == [verb] else summary
        app.command(where, name=verb, help=described, sort_key=place)
    return app


def run(tokens: Sequence[str]) -> int:
    """Run one command line and return its exit code; no exception leaves this function."""
    try:
        require_known(tokens)
        code = build(tokens)(
            tokens, exit_on_error=False, print_error=False, verbose=False, result_action="return_value"
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except AntiphonError as error:
        print_error(error.sentence, error.hint)
        return UNUSABLE
    except CycloptsError as error:
        print_error(" ".join(str(error).split()), f"{_command(tokens)} --help shows what it takes.")
        return UNUSABLE
    except KeyboardInterrupt:
        talk.print("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone (`| head`): there is no stream left to report on.
        _write_no_more()
        return OK
    except OSError as error:
        _write_no_more()  # what is left would fail in the same way when the interpreter ends
        where = "" if error.filename is None else f" ({error.filename})"
        print_error(
            f"Something could not be read or written: {error.strerror or error}{where}.",
            "Is there room on the disk, and may you use these files?",
        )
        return UNUSABLE
    except Exception as error:
        if os.environ.get("ANTIPHON_DEBUG"):
            raise
        print_error(
            f"This is a mistake of Antiphon's own: {type(error).__name__}: {error}",
            "ANTIPHON_DEBUG=1 shows where it happened; please report it.",
        )
        return UNUSABLE


def _write_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_streams() -> None:
    """Replace streams that the caller closed (`<&-`), so that the next opened file does not take their
    place."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, mode))  # noqa: SIM115, PTH123 (for as long as we run)


def require_known(tokens: Sequence[str]) -> None:
    """An unknown verb, or protocol to simulate, raises, and lists the known ones.

    So does a verb that needs what the machine lacks.
    """
    words = [token for token in tokens[:2] if not token.startswith("-")]
    if words and words[0] not in VERBS:
        near = difflib.get_close_matches(words[0], VERBS, n=1)
        guess = f"Did you mean '{near[0]}'? " if near else ""
        raise UsageError(f"There is no command '{words[0]}'.", hint=f"{guess}There are: {', '.join(VERBS)}.")
    for extra in EXTRAS.get("".join(words[:1]), ()):
        require_extra(extra, f"'antiphon {words[0]}' needs")
    if words[:1] == ["simulate"] and len(words) == 2:
        find_scenario(words[1])
        if ":" in words[1]:
            from antiphon.cli.simulate import add

            add(words[1])


def _command(tokens: Sequence[str]) -> str:
    words = list(itertools.takewhile(lambda token: not token.startswith("-"), tokens))
    return " ".join(["antiphon", *words[: 2 if words[:1] == ["simulate"] else 1]])


def main() -> None:
    # The bridge to Java logs a traceback when it is interrupted; we print our own sentence.
    logging.basicConfig(handlers=[logging.NullHandler()])
    _open_streams()
    allow_plain()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
