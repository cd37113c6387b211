"""The flags of the orders: each option of each order can be set from the shell."""

import pytest

from antiphon.cli.live_options import given
from antiphon.cli.main import build
from antiphon.live.orders import ORDERS

SWITCHES = [
    (order, name, knob.default)
    for order, kind in ORDERS.items()
    for name, knob in kind.knobs().items()
    if knob.kind is bool
]


@pytest.mark.parametrize(("order", "name", "default"), SWITCHES)
def test_a_switch_turns_an_option_to_what_it_is_not_by_default(order: str, name: str, default: bool) -> None:
    flag = f"--{'no-' * default}{name.replace('_', '-')}"
    tokens = ["node", "shop", "--order", order, flag]
    _, bound, _ = build(tokens).parse_args(tokens, exit_on_error=False)
    assert given(bound.arguments["options"]) == {name: not default}


def test_what_is_not_set_is_not_passed_on() -> None:
    tokens = ["node", "shop", "--order", "causal", "--confirm", "causal"]
    _, bound, _ = build(tokens).parse_args(tokens, exit_on_error=False)
    assert given(bound.arguments["options"]) == {"confirm": "causal"}
