"""The audit in compiled form: packs a trace's rows, judges each run with kernels, sums up. No Spark."""

from antiphon.core.extras import require_extra

require_extra("sim", "The audit needs")
