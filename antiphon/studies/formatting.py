"""Numbers as findings and tables write them."""


def number(value: float) -> str:
    """Four significant digits; from 1000 on, whole numbers with thin spaces between thousands."""
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", "\u202f")
    return f"{value:.4g}"
