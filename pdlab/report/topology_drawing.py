# SPDX-License-Identifier: Apache-2.0
"""A drawing of a deployment as SVG: hosts, NUMA nodes, servers with their GPUs and ports, the router, the paths. Pure.

It is as wide as a phone shows without scaling, so that its text stays as large as the page's. Colours come from the
page's style sheet through classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pdlab.report.topology_view import Box, HostView, Node

WIDTH = 340
GUTTER = 15
COLUMN = 138
BETWEEN = WIDTH - 2 * GUTTER - 2 * COLUMN
LINE = 16
PAD = 8
CHIP = 24
CHIPS_A_ROW = (COLUMN - 2 * PAD) // (CHIP + 4)
# Characters of the drawing's font that fit into a box.
FITS = 19


@dataclass(frozen=True)
class _Placed:
    """A box at its place, in px; `column` 0 or 1."""

    box: Box
    x: float
    y: float
    height: float
    column: int

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def drawing(hosts: Sequence[HostView], id: str, title: str) -> str:
    """The drawing; empty without hosts. `id` must be unique on the page."""
    if not hosts:
        return ""
    parts: list[str] = []
    placed: list[_Placed] = []
    router_at: tuple[float, float] | None = None
    y = 4.0
    for host in hosts:
        top = y
        y += 24
        parts.append(_text(GUTTER, y - 6, f"host {host.name}", "strong", 44))
        if host.gpu_name:
            y += LINE
            parts.append(_text(GUTTER, y - 6, host.gpu_name, "soft", 48))
        if host.router:
            parts += _router(host.router, y)
            router_at = (y, y + 42)
            y += 42 + 22
        y, made, boxes = _nodes(host.nodes, y)
        parts += made
        placed += boxes
        parts.insert(0, f'<rect class="host" x="2" y="{top:g}" width="{WIDTH - 4}" height="{y - top:g}" rx="8"/>')
        y += 14
    paths = _paths(placed, router_at, id)
    words = escape(f"{title}: {_words(hosts)}")
    return (
        f'<svg class="topology" role="img" aria-label="{words}" width="{WIDTH}" height="{y:g}" '
        f'viewBox="0 0 {WIDTH} {y:g}" xmlns="http://www.w3.org/2000/svg">'
        f'<defs><marker id="{id}-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
        + "".join(parts)
        + "".join(paths)
        + "</svg>"
    )


def _nodes(nodes: Sequence[Node], y: float) -> tuple[float, list[str], list[_Placed]]:
    """NUMA nodes, two beside each other; a lone node has two columns of its own. Returns where they end."""
    parts: list[str] = []
    placed: list[_Placed] = []
    if len(nodes) == 1:
        return _node(nodes[0], y, (0, 1))
    for first in range(0, len(nodes), 2):
        ends = []
        for column, node in enumerate(nodes[first : first + 2]):
            end, made, boxes = _node(node, y, (column,))
            ends.append(end)
            parts += made
            placed += boxes
        y = max(ends)
    return y, parts, placed


def _node(node: Node, y: float, columns: tuple[int, ...]) -> tuple[float, list[str], list[_Placed]]:
    top, left = y, _x(columns[0])
    width = _x(columns[-1]) + COLUMN - left
    y += 20
    parts = [_text(left + 2, y - 6, node.title, "soft", 21 * len(columns))]
    placed: list[_Placed] = []
    for first in range(0, len(node.servers), len(columns)):
        row = node.servers[first : first + len(columns)]
        heights = [_height(box) for box in row]
        for column, box, height in zip(columns, row, heights, strict=False):
            placed.append(_Placed(box, _x(column), y, height, column))
            parts += _server(box, _x(column), y, height)
        y += max(heights) + 18
    if node.idle:
        parts.append(_text(left + 2, y + 8, "idle GPUs", "soft", 21))
        y += 12
        parts += _chips(node.idle, left, y, "chip idle")
        y += _chip_rows(node.idle) * (CHIP + 2) + 8
    parts.insert(
        0, f'<rect class="node" x="{left - 5:g}" y="{top:g}" width="{width + 10:g}" height="{y - top - 6:g}" rx="5"/>'
    )
    return y + 4, parts, placed


def _server(box: Box, x: float, y: float, height: float) -> list[str]:
    parts = [
        f'<rect class="server {escape(box.role)}" x="{x:g}" y="{y:g}" width="{COLUMN}" height="{height:g}" rx="5"/>'
    ]
    line = y + PAD + 11
    parts.append(_text(x + PAD, line, box.name, "strong", FITS - 1))
    line += LINE
    spread = f" · TP {box.tp}" if box.gpus or box.tp > 1 else f" · {box.device}" if box.device else ""
    parts.append(_text(x + PAD, line, box.role + spread, "", FITS))
    if box.gpus:
        parts += _chips(box.gpus, x + PAD, line + 6, "chip")
        line += 6 + _chip_rows(box.gpus) * (CHIP + 2)
    for port in box.ports:
        line += LINE
        parts.append(_text(x + PAD, line, port, "soft", FITS))
    return parts


def _router(box: Box, y: float) -> list[str]:
    width = WIDTH - 2 * GUTTER
    return [
        f'<rect class="server router" x="{GUTTER}" y="{y:g}" width="{width}" height="42" rx="5"/>',
        _text(GUTTER + PAD, y + 17, box.name, "strong", 40),
        _text(GUTTER + PAD, y + 17 + LINE, ", ".join(box.ports), "soft", 44),
    ]


def _chips(gpus: Sequence[int], x: float, y: float, kind: str) -> list[str]:
    parts = []
    for place, gpu in enumerate(gpus):
        left = x + (place % CHIPS_A_ROW) * (CHIP + 4)
        top = y + (place // CHIPS_A_ROW) * (CHIP + 2)
        parts.append(f'<rect class="{kind}" x="{left:g}" y="{top:g}" width="{CHIP}" height="{CHIP - 4}" rx="3"/>')
        parts.append(f'<text class="number" x="{left + CHIP / 2:g}" y="{top + 14:g}">{gpu}</text>')
    return parts


def _chip_rows(gpus: Sequence[int]) -> int:
    return -(-len(gpus) // CHIPS_A_ROW)


def _height(box: Box) -> float:
    chips = 6 + _chip_rows(box.gpus) * (CHIP + 2) if box.gpus else 0
    return PAD + 11 + LINE + chips + LINE * len(box.ports) + PAD


def _paths(placed: Sequence[_Placed], router: tuple[float, float] | None, id: str) -> list[str]:
    """Requests from the router along the outer edges; KV cache from each prefill server to each decode server."""
    paths = []
    if router:
        for one in placed:
            # A column's requests run outside of it, so that no line crosses a box.
            edge, side = (GUTTER - 9, one.x) if one.column == 0 else (WIDTH - GUTTER + 9, one.x + COLUMN)
            start = GUTTER if one.column == 0 else WIDTH - GUTTER
            paths.append(
                f'<path class="requests" marker-end="url(#{id}-tip)" d="M{start} {router[1] - 12:g}H{edge:g}V{one.middle:g}H{side:g}"/>'
            )
    prefills = [one for one in placed if one.box.role == "prefill"]
    decodes = [one for one in placed if one.box.role == "decode"]
    for source in prefills:
        for target in decodes:
            paths.append(f'<path class="kv" marker-end="url(#{id}-tip)" d="{_between(source, target)}"/>')
    if prefills and decodes:
        first, last = prefills[0], decodes[0]
        across = first.column != last.column
        x = GUTTER + COLUMN + BETWEEN / 2 if across else first.x + COLUMN / 2 + 16
        y = (_level(first, last) + _level(last, first)) / 2 - 8 if across else max(first.y, last.y) - 5
        paths.append(f'<text class="soft middle" x="{x:g}" y="{y:g}">KV</text>')
    return paths


def _between(source: _Placed, target: _Placed) -> str:
    if source.column != target.column:
        left_to_right = source.column < target.column
        start = source.x + (COLUMN if left_to_right else 0)
        end = target.x + (0 if left_to_right else COLUMN)
        return f"M{start:g} {_level(source, target):g}L{end:g} {_level(target, source):g}"
    down = source.y < target.y
    x = source.x + COLUMN / 2
    start, end = (source.y + source.height, target.y) if down else (source.y, target.y + target.height)
    return f"M{x:g} {start:g}L{x:g} {end:g}"


def _level(one: _Placed, other: _Placed) -> float:
    """Where a path leaves a box: at the same height as it enters the other where both have it, so that it is level."""
    top, bottom = max(one.y, other.y), min(one.y + one.height, other.y + other.height)
    return (top + bottom) / 2 if bottom > top else one.middle


def _x(column: int) -> float:
    return float(GUTTER + column * (COLUMN + BETWEEN))


def _text(x: float, y: float, text: str, kind: str, most: int) -> str:
    """One line of text; cut with its whole as a tooltip when it would leave its box."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    whole = f"<title>{escape(text)}</title>" if cut != text else ""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(cut)}{whole}</text>'


def _words(hosts: Sequence[HostView]) -> str:
    """The drawing for those who do not see it."""
    said = []
    for host in hosts:
        boxes = [*([host.router] if host.router else []), *(box for node in host.nodes for box in node.servers)]
        listed = "; ".join(
            f"{box.name} ({box.role}{', GPU ' + ' '.join(map(str, box.gpus)) if box.gpus else ''}, {', '.join(box.ports)})"
            for box in boxes
        )
        said.append(f"host {host.name}: {listed}")
    return ". ".join(said)
