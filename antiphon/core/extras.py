"""The optional parts of the package: the packages that each needs, and the error if one is missing."""

import importlib.util
from collections.abc import Mapping
from typing import Final

from antiphon.core.errors import MissingRequirementError

PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "cli": ("cyclopts", "rich"),
    "sim": ("numba", "pyarrow"),
    "trace": ("pyarrow",),
    "spark": ("pyspark", "pyarrow", "numba"),
    "report": ("matplotlib",),
    "metrics": ("prometheus_client",),
    "uvloop": ("uvloop",),
}
"""The packages that each extra of pyproject.toml installs."""


def require_extra(extra: str, subject: str) -> None:
    """Raise if a package of an extra is missing; `subject` is as in 'Spark jobs need'."""
    for package in PACKAGES[extra]:
        if importlib.util.find_spec(package) is None:
            raise lacking(extra, subject, package)


def lacking(extra: str, subject: str, package: str | None = None) -> MissingRequirementError:
    """The error for a package of an extra, by default its first, that cannot be imported."""
    name = PACKAGES[extra][0] if package is None else package
    return MissingRequirementError(
        f"{subject} the package {name}, which is not installed.", hint=f"pip install 'antiphon[{extra}]'"
    )
