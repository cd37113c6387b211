"""The marks that `tests/conftest.py` gives reach pytest-xdist."""

import pytest


@pytest.mark.live
def test_tests_of_one_group_stay_in_one_process(request: pytest.FixtureRequest) -> None:
    """Otherwise each process starts a Spark of its own, and live groups share the machine, without a word."""
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("The tests are not distributed by their groups.")
    assert request.node.nodeid.endswith("@live")
