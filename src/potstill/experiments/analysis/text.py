"""Numbers and effects as text."""

from __future__ import annotations

from potstill.experiments.analysis.effects import LEAST_ANYTIME, Interval, Measured

#: Why units can be in both arms, and what to do.
WHY_IN_BOTH = (
    "If the share was changed while the experiment was running, start again under another name. If it was not, another "
    "unit was randomised: state it with --unit."
)


def percent(share: float, *, sign: bool = False) -> str:
    """A share such as ``3.1 %``, or ``+3.1 %`` with its sign."""
    value = 100 * share
    digits = 1 if abs(value) > 0.099 or not value else 2 if abs(value) > 0.0099 else 3
    return f"{value:{'+' if sign else ''}.{digits}f} %".replace("-", "−")


def number(value: float, *, sign: bool = False) -> str:
    """A number with four significant digits, optionally with its sign."""
    return f"{value:{'+' if sign else ''},.4g}".replace("-", "−")


def ends(interval: Interval, *, relative: bool) -> str:
    """An interval such as ``1.2 % to 5.0 %``."""
    format_value = percent if relative else number
    return f"{format_value(interval.low)} to {format_value(interval.high)}"


def effect(measured: Measured) -> str:
    """The difference with its sign, relative if available."""
    if measured.relative is None:
        return number(measured.difference, sign=True)
    return percent(measured.relative, sign=True)


def once(measured: Measured) -> str:
    """The fixed-horizon interval, relative if available."""
    if measured.relative_interval is None:
        return ends(measured.interval, relative=False)
    return ends(measured.relative_interval, relative=True)


def difference(measured: Measured) -> str:
    """The difference with its fixed-horizon interval, such as ``+3.1 % (1.2 % to 5.0 %)``."""
    return f"{effect(measured)} ({once(measured)})"


def anytime(measured: Measured) -> str:
    """The anytime-valid interval, relative if available; a dash with too few units."""
    if measured.units < LEAST_ANYTIME:
        return "–"
    if measured.relative_interval is None:
        return ends(measured.anytime, relative=False)
    if measured.relative_anytime is None:
        return "no bounds yet"
    return ends(measured.relative_anytime, relative=True)


def detectable(measured: Measured) -> str:
    """The minimum detectable effect, with ±."""
    if measured.relative is None:
        return f"±{number(measured.detectable)}"
    return f"±{percent(measured.detectable / measured.control)}"


def probability(p: float) -> str:
    """A p-value."""
    return f"p = {p:.2g}" if p >= 1e-10 else "p < 1e-10"


def counted(number: int, what: str) -> str:
    """A count with its noun, such as ``1 unit`` or ``1,200 units``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
