"""Bars as SVG: one panel a case, its bars to one scale, the median as length and least and most as a whisker."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.peers.results import Spread

WIDTH, LEFT, RIGHT = 760, 130, 90
BAR, GAP, HEAD, TOP = 16, 6, 26, 44
COLOURS = {
    "tally-shared": "#0072B2",
    "tally": "#56B4E9",
    "flink": "#D55E00",
    "native": "#009E73",
    "spark-tuned": "#8C8C8C",
}
Panel = tuple[str, Sequence[tuple[str, Spread | None]]]


def bars(title: str, unit: str, panels: Sequence[Panel]) -> str:
    """The document; an engine without a right answer has a word where its bar would be."""
    at, shapes = TOP, list[str]()
    for case, found in panels:
        most = max((spread.most for _, spread in found if spread), default=1.0) or 1.0
        shapes.append(text(LEFT, at + 14, case, weight="bold"))
        at += HEAD
        for engine, spread in found:
            shapes += bar(engine, spread, at, (WIDTH - LEFT - RIGHT) / most)
            at += BAR + GAP
        at += GAP
    head = f'<text x="12" y="24" font-size="15" font-weight="bold">{escape(title)}, {escape(unit)}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{at + 8}" viewBox="0 0 {WIDTH} {at + 8}" '
        'font-family="sans-serif" font-size="12" fill="#1a1a1a">\n'
        f'<rect width="{WIDTH}" height="{at + 8}" fill="#ffffff"/>\n' + "\n".join([head, *shapes]) + "\n</svg>\n"
    )


def bar(engine: str, spread: Spread | None, at: int, scale: float) -> list[str]:
    name = text(LEFT - 8, at + 12, engine, anchor="end")
    if spread is None:
        return [name, text(LEFT + 4, at + 12, "no right answer")]
    middle, length = at + BAR / 2, max(1.0, spread.median * scale)
    low, high = LEFT + spread.least * scale, LEFT + spread.most * scale
    drawn = [
        name,
        f'<rect x="{LEFT}" y="{at}" width="{length:.1f}" height="{BAR}" fill="{COLOURS.get(engine, "#444444")}"/>',
        text(int(max(high, LEFT + length)) + 6, at + 12, shown(spread.median)),
    ]
    if spread.runs > 1:
        ends = f"M{low:.1f} {at + 4}v{BAR - 8}M{high:.1f} {at + 4}v{BAR - 8}"
        drawn.append(f'<path d="M{low:.1f} {middle}H{high:.1f}{ends}" stroke="#1a1a1a" fill="none"/>')
    return drawn


def text(x: int, y: int, words: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'


def shown(value: float) -> str:
    """Three digits, or all of a larger whole number."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
