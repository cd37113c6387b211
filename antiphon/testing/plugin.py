"""A plugin for pytest: async tests that take `antiphon_cluster` run on simulated time.

It is loaded by one line in conftest.py: pytest_plugins = ["antiphon.testing.plugin"]
"""

import inspect
from collections.abc import Callable

import pytest

from antiphon.testing.clusters import Cluster, cluster
from antiphon.testing.loop import run


@pytest.fixture
def antiphon_cluster() -> Callable[..., Cluster]:
    """`antiphon.testing.cluster`, for an async test that is to run on simulated time."""
    return cluster


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    function = pyfuncitem.obj
    if "antiphon_cluster" not in pyfuncitem.fixturenames or not inspect.iscoroutinefunction(function):
        return None
    names = inspect.signature(function).parameters
    run(function(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
