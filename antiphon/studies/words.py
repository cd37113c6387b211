"""Numbers in words: how findings and tables write them."""


def number(value: float) -> str:
    """Four digits that matter; whole and with its thousands set apart from a thousand on."""
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", "\u202f")
    return f"{value:.4g}"
