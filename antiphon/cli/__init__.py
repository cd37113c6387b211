"""The command line, one file per verb. stdout is data, stderr is talk."""

from antiphon.core.extras import require_extra

require_extra("cli", "The command line needs")
