"""`antiphon` and `python -m antiphon`: the command line, or a sentence where its packages are missing."""

import sys

from antiphon.core.errors import MissingRequirementError


def main() -> None:
    try:
        from antiphon.cli.main import main as run

        run()
    except MissingRequirementError as error:
        sys.stderr.write(f"error: {error.sentence}\nhint: {error.hint}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        # While the packages load, or again while a verb is being ended.
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
