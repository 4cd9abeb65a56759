# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG text, for pages that need no other file; colours are in the page's style sheet."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 660, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 30, 40

Points = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Line:
    """A named series.

    Attributes:
        name: In the legend.
        points: [x, y], x ascending.
        style: Class in the style sheet: "a", "b" or "c".
    """

    name: str
    points: Points
    style: str


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`.

    Attributes:
        title: What it measures, with its unit.
        low: Its start.
        high: Its end.
        text: Writes a tick.
        is_log: Whether powers of ten have equal distances.
    """

    title: str
    low: float
    high: float
    text: Callable[[float], str] = "{:g}".format
    is_log: bool = False

    def place(self, value: float) -> float:
        """0 at its start, 1 at its end."""
        if self.is_log:
            low, high = math.log10(self.low), math.log10(self.high)
            value = math.log10(max(value, self.low))
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0

    def ticks(self) -> list[float]:
        """Some four to eight round numbers."""
        if self.is_log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            return [10.0**power for power in range(first, last + 1)]
        span = self.high - self.low
        if span < 1e-12:
            return [self.low]
        raw = span / 5
        unit = 10 ** math.floor(math.log10(raw))
        step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 12) for i in range(first, last + 1)]


def line_chart(title: str, x: Axis, y: Axis, lines: Sequence[Line], *, steps: bool = False) -> str:
    """Lines over a common axis; `steps` draws them as a cumulative distribution."""
    parts = _frame(x, y, lines)
    for line in lines:
        if not line.points:
            continue
        path = ""
        for i, (px, py) in enumerate(line.points):
            at = f"{_x(x, px):.1f} {_y(y, py):.1f}"
            if i and steps:
                path += f"H{_x(x, px):.1f}"
            path += ("L" if i else "M") + at
        name = html.escape(line.name)
        parts.append(f'<path class="line {line.style}" d="{path}"><title>{name}</title></path>')
    return _svg(title, parts)


def bar_chart(title: str, x: Axis, y: Axis, lines: Sequence[Line]) -> str:
    """Bars of equal x on top of each other."""
    parts = _frame(x, y, lines)
    count = max((len(line.points) for line in lines), default=0)
    width = (WIDTH - _LEFT - _RIGHT) / max(count, 1)
    for i in range(count):
        base = 0.0
        for line in lines:
            px, amount = line.points[i]
            if amount <= 0:
                continue
            top, bottom = _y(y, base + amount), _y(y, base)
            base += amount
            tip = html.escape(f"{line.name}: {y.text(amount)} at {x.text(px)}")
            parts.append(
                f'<rect class="bar {line.style}" x="{_x(x, px) - width / 2 + 0.75:.1f}" '
                f'y="{top:.1f}" width="{max(1.0, width - 1.5):.1f}" '
                f'height="{max(0.0, bottom - top):.1f}"><title>{tip}</title></rect>'
            )
    return _svg(title, parts)


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.place(value) * (WIDTH - _LEFT - _RIGHT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - _BOTTOM - axis.place(value) * (HEIGHT - _TOP - _BOTTOM)


def _frame(x: Axis, y: Axis, lines: Sequence[Line]) -> list[str]:
    """Grid, ticks, titles of the axes and the legend."""
    parts = []
    for tick in y.ticks():
        at = _y(y, tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{WIDTH - _RIGHT}"/>')
        parts.append(
            f'<text class="tick" x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">'
            f"{html.escape(y.text(tick))}</text>"
        )
    for tick in x.ticks():
        at = _x(x, tick)
        parts.append(
            f'<text class="tick" x="{at:.1f}" y="{HEIGHT - _BOTTOM + 17}" text-anchor="middle">'
            f"{html.escape(x.text(tick))}</text>"
        )
    parts.append(f'<path class="axis" d="M{_LEFT} {HEIGHT - _BOTTOM}H{WIDTH - _RIGHT}"/>')
    parts.append(
        f'<text class="tick" x="{WIDTH - _RIGHT}" y="{HEIGHT - 6}" text-anchor="end">'
        f"{html.escape(x.title)}</text>"
    )
    parts.append(f'<text class="tick" x="4" y="14">{html.escape(y.title)}</text>')
    at = float(WIDTH - _RIGHT)
    for line in reversed(lines if len(lines) > 1 else []):
        at -= 7.0 * len(line.name) + 24
        parts.append(f'<rect class="bar {line.style}" x="{at:.0f}" y="6" width="10" height="10"/>')
        parts.append(f'<text class="key" x="{at + 15:.0f}" y="15">{html.escape(line.name)}</text>')
    return parts


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">'
        + "".join(parts)
        + "</svg>"
    )
