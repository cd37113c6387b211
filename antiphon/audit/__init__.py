"""The audit in compiled form: packs a trace's rows, judges each run with kernels, sums up. No Spark.

The package can be called: `antiphon.audit(spark, path)` is `antiphon.spark.frames.audit`, under the name that
a user expects. It is found when it is called, so that nothing here depends on Spark.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from antiphon.core.extras import require_extra

require_extra("sim", "The audit needs")


class _Callable(ModuleType):
    def __call__(self, spark: Any, source: Any, *arguments: Any, **options: Any) -> Any:
        return import_module("antiphon.spark.frames").audit(spark, source, *arguments, **options)


sys.modules[__name__].__class__ = _Callable
