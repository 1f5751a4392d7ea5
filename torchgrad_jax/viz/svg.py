"""A picture as SVG, which needs nothing else: its colours are for light pages and for dark ones, its text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from torchgrad_jax.viz.layout import laid_out
from torchgrad_jax.viz.reading import Edge, Node

_LINE, _PADDING, _CHARACTER, _SMALL = 15.0, 8.0, 7.3, 6.1
_LONGEST = 64
# By kind of box, its colour on light pages and on dark ones; then the names in it, and its other text. What is drawn outside of boxes has one colour
# that can be seen on both: the page's may be another than the reader asked for.
_LIGHT = {"operation": "#f6f8fa", "leaf": "#ddf4ff", "output": "#dafbe1", "folded": "#fff8c5"}, "#1f2328", "#59636e"
_DARK = {"operation": "#22272e", "leaf": "#0c2d48", "output": "#12371d", "folded": "#3b2f0b"}, "#e6edf3", "#9ea7b3"
_OUTSIDE = "#7d8590"
# How pages say which of the two they are: JupyterLab, mkdocs and Sphinx themes, VS Code.
_LIGHT_PAGES = '[data-jp-theme-light="true"]', '[data-md-color-scheme="default"]', '[data-theme="light"]', ".vscode-light"
_DARK_PAGES = '[data-jp-theme-light="false"]', '[data-md-color-scheme="slate"]', '[data-theme="dark"]', ".vscode-dark"


def _colours(scheme: tuple[dict[str, str], str, str], pages: Sequence[str] = ("",)) -> str:
    boxes, name, other = scheme
    rules = [(f"rect.{kind}", colour) for kind, colour in boxes.items()] + [("text", other), ("text.name", name)]
    return "\n".join(f"{', '.join(f'{page} .tg {what}'.strip() for page in pages)} {{ fill: {colour}; }}" for what, colour in rules)


_STYLE = f"""
.tg text {{ font: 11px ui-monospace, Menlo, Consolas, monospace; }}
.tg text.name {{ font-size: 12.5px; font-weight: 600; }}
.tg rect {{ stroke: {_OUTSIDE}; }}
.tg rect.folded {{ stroke-dasharray: 4 3; }}
.tg path {{ fill: none; stroke: {_OUTSIDE}; stroke-width: 1.3; }}
.tg path.head {{ fill: {_OUTSIDE}; stroke: none; }}
{_colours(_LIGHT)}
@media (prefers-color-scheme: dark) {{
{_colours(_DARK)}
}}
{_colours(_LIGHT, _LIGHT_PAGES)}
{_colours(_DARK, _DARK_PAGES)}
.tg text.outside {{ fill: {_OUTSIDE} !important; }}
"""


def svg_of(nodes: Sequence[Node], edges: Sequence[Edge], note: str) -> str:
    """The picture. Leaves are at the top, outputs at the bottom, and arrows lead as the forward pass went."""
    lines = [lines_of(node) for node in nodes]
    # The edges of the graph lead from results to operands: the picture's the other way.
    layout = laid_out([_size(one) for one in lines], [(edge.target, edge.source) for edge in edges])
    several = {edge.target for edge in edges if edge.output} | {node.number for node in nodes if len(node.outputs) > 1}
    parts = [_path(route, str(edge.output) if edge.target in several else "") for edge, route in zip(edges, layout.routes, strict=True)]
    for node, text, box in zip(nodes, lines, layout.boxes, strict=True):
        parts.append(_box(node, text, box.x, box.y, box.width, box.height))
    width, height = layout.width, layout.height
    if note:
        width = max(width, len(note) * _SMALL + 40)
        parts.append(f'<text class="outside" x="16" y="{height + 4:.1f}">{_text(note)}</text>')
        height += _LINE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tg" role="img" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" style="max-width: 100%; height: auto">\n'
        f"<title>autograd graph of {len(nodes)} nodes</title>\n<style>{_STYLE}</style>\n" + "\n".join(parts) + "\n</svg>"
    )


def lines_of(node: Node) -> list[str]:
    """What stands in a node's box, its name first."""
    found = [node.name]
    if node.outputs:
        found.append("→ " + ", ".join(node.outputs))
    if node.saved:
        found.append("saves " + ", ".join(map(str, node.saved)))
    if node.hooks:
        found.append(f"{len(node.hooks)} hook{'' if len(node.hooks) == 1 else 's'}: " + ", ".join(node.hooks))
    if node.line:
        found.append(short_line(node))
    return [line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…" for line in found]


def short_line(node: Node) -> str:
    """Where a node was made, without the folder."""
    at = node.line.replace("\\", "/").rpartition("/")[2]
    return f"{at} in {node.function}" if node.function not in ("", "<module>") else at


def _size(lines: Sequence[str]) -> tuple[float, float]:
    widest = max(len(line) * (_SMALL + 0.5 if i else _CHARACTER + 0.3) for i, line in enumerate(lines))
    return widest + 2 * _PADDING, len(lines) * _LINE + 2 * _PADDING - 4


def _box(node: Node, lines: Sequence[str], x: float, y: float, width: float, height: float) -> str:
    tip = "\n".join([node.name, *node.outputs, *(f"saves {s}" for s in node.saved), *node.hooks, *([node.traceback] if node.traceback else [])])
    texts = []
    for i, line in enumerate(lines):
        kind = "" if i else ' class="name"'
        texts.append(f'<text x="{x + width / 2:.1f}" y="{y + _PADDING + 9 + i * _LINE:.1f}" text-anchor="middle"{kind}>{_text(line)}</text>')
    shape = f'<rect class="{node.kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{12 if node.kind == "leaf" else 4}"/>'
    return f'<g id="node{node.number}"><title>{_text(tip)}</title>{shape}{"".join(texts)}</g>'


def _path(points: Sequence[tuple[float, float]], label: str) -> str:
    """A curve through points that are below each other, with a head at its end."""
    (x, y), *rest = points
    drawn = [f"M{x:.1f} {y:.1f}"]
    for i, (to_x, to_y) in enumerate(rest):
        end = to_y - 5 if i == len(rest) - 1 else to_y
        half = (y + end) / 2
        drawn.append(f"C{x:.1f} {half:.1f} {to_x:.1f} {half:.1f} {to_x:.1f} {end:.1f}")
        x, y = to_x, end
    head = f'<path class="head" d="M{x - 4:.1f} {y - 2:.1f}L{x + 4:.1f} {y - 2:.1f}L{x:.1f} {y + 5:.1f}Z"/>'
    number = f'<text class="outside" x="{points[0][0] + 4:.1f}" y="{points[0][1] + 12:.1f}">{label}</text>' if label else ""
    return f'<path d="{"".join(drawn)}"/>{head}{number}'


def _text(text: str) -> str:
    """Escaped, without the characters that XML has not."""
    return escape("".join(c if c in "\n\t" or c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff" else "?" for c in text))
