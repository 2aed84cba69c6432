"""How numbers look in a report."""

from __future__ import annotations

from memagent.evaluation.statistics import Interval

NONE = "–"


def percent(share: float | None, places: int = 1) -> str:
    """0.975 → "97.5"."""
    return NONE if share is None else f"{100 * share:.{places}f}"


def percents(interval: Interval) -> str:
    """An interval in per cent: "94.3–98.9"."""
    return f"{percent(interval.low)}–{percent(interval.high)}"


def signed(difference: float) -> str:
    """A difference in points, with its sign: "+2.5", "−0.5", "0.0"."""
    text = f"{100 * difference:+.1f}".replace("-", "−")
    return text[1:] if text[1:] == "0.0" else text


def signed_interval(interval: Interval) -> str:
    """An interval of differences: "−1.0 to +4.0"."""
    return f"{signed(interval.low)} to {signed(interval.high)}"


def number(value: float | None) -> str:
    """Three significant digits, or all of a large number's whole ones: "0.0123", "4.56", "12,345"."""
    if value is None:
        return NONE
    return (f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}").replace("-", "−")


def tokens(length: int, ranged: bool = False) -> str:
    """A length class in full: "16,384"; "up to 16,384" if it is `ranged`."""
    if not length:
        return "length unknown"
    return f"up to {length:,}" if ranged else f"{length:,}"


def depth(low: float, high: float) -> str:
    """A row of a map of depths: "40–50 %", "50 %"."""
    ends = [f"{100 * end:.3g}" for end in (low, high)]
    return f"{ends[0]} %" if low == high else f"{'–'.join(ends)} %"


def r2(value: float | None) -> str:
    """The share of the variance that a line explains."""
    return NONE if value is None else f"{value:.4f}"


def short(length: int, ranged: bool = False) -> str:
    """A length for an axis: K is 1,024, k and M are 1,000 and 1,000,000; "≤16K" if it is `ranged`."""
    if ranged:
        return f"≤{short(length)}"
    for unit, name in ((1_000_000, "M"), (1024, "K"), (1000, "k")):
        if length >= unit and length % unit == 0:
            return f"{length // unit}{name}"
    return f"{length / 1e6:.3g}M" if length >= 1e6 else f"{length / 1e3:.3g}k" if length >= 1e3 else str(length)
