"""Self-contained HTML report pages with Vega-Lite charts, and charts as small PNG files.

The chart renderer writes PNGs with four bytes per pixel and light compression. Charts have few colours, so a palette
with one byte per pixel is enough, and pictures in a repository stay small.
"""

from __future__ import annotations

import html
import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import vl_convert
from numpy.typing import NDArray

from potstill._version import __version__
from potstill.errors import InvalidOption

Bytes = NDArray[np.uint8]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGBA_8_BIT = (8, 6, 0, 0, 0)
_COLOURS = 256


Chart = alt.Chart | alt.LayerChart | alt.FacetChart | alt.HConcatChart | alt.VConcatChart | alt.ConcatChart
_NUMBER = re.compile(r"[~<>≤≥±+−-]?\s*\d")
_NOTHING = {"", "–"}
_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$name</title>
<style>
:root { color-scheme: light dark; --ink: #1f2328; --soft: #5f6670; --line: #e3e5e8; --page: #fff; --copper: #b25722; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6e9; --soft: #9aa1ab; --line: #30353c; --page: #15181c; --copper: #e08a52; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
h1, h2, p, .figures span { overflow-wrap: anywhere; }
main { max-width: 1040px; margin: 0 auto; padding: 48px 24px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 0 0 6px; }
p { margin: 0; color: var(--soft); max-width: 76ch; }
p + p, div + p { margin-top: 12px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 28px; margin: 36px 0 8px; }
.figures strong { display: block; font-size: 32px; line-height: 1.2; color: var(--copper); font-weight: 600; }
.figures span { color: var(--soft); font-size: 14px; line-height: 1.45; display: block; margin-top: 4px; }
section { border-top: 1px solid var(--line); padding-top: 28px; margin-top: 36px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 24px; margin-top: 18px; }
.charts.wide { grid-template-columns: 1fr; }
.chart { width: 100%; min-width: 0; overflow-x: auto; }
.chart > div { width: 100%; }
.table { overflow-x: auto; margin-top: 12px; }
table { border-collapse: collapse; font-size: 14px; line-height: 1.35; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: normal; vertical-align: bottom; }
th, td { padding: 5px 18px 5px 0; border-bottom: 1px solid var(--line); text-align: left; }
th.number, td.number { text-align: right; }
td:not(:last-child), td.number { white-space: nowrap; }
td:last-child:not(.number) { min-width: 15em; }
pre { overflow-x: auto; padding: 14px 16px; border: 1px solid var(--line); border-radius: 6px; font-size: 13px; }
footer { color: var(--soft); font-size: 13px; margin-top: 36px; }
@media (max-width: 520px) {
  main { padding: 28px 16px 48px; }
  .charts { grid-template-columns: 1fr; }
  .chart > div { min-width: 560px; }
}
</style>
</head>
<body>
<main>
<h1>$title</h1>
<p>$subtitle</p>
<div class="figures">
$headlines
</div>
<noscript><p>The charts below need JavaScript, which is disabled.</p></noscript>
$sections
<footer>Potstill $version. This page needs no network.</footer>
</main>
<script type="module">$library</script>
<script type="module">
const specs = $specs;
const dark = matchMedia("(prefers-color-scheme: dark)");
const themes = {light: $light, dark: $dark};
function draw() {
  const config = themes[dark.matches ? "dark" : "light"];
  for (const [id, spec] of Object.entries(specs))
    vegaEmbed("#" + id, spec, {actions: false, renderer: "svg", config});
}
draw();
dark.addEventListener("change", draw);
</script>
</body>
</html>
""")


def reduce_png(png: bytes) -> bytes:
    """Quantise a chart's PNG to at most 256 colours on white; other PNG formats are returned unchanged."""
    chunks = dict(_chunks(png))
    width, height, *kind = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    if tuple(kind) != _RGBA_8_BIT or not (rows[:, 0] == 1).all():
        return png
    # All rows use the "Sub" filter: each pixel is stored as its difference to the left neighbour, modulo 256.
    pixels = rows[:, 1:].reshape(height, width, 4).cumsum(axis=1, dtype=np.uint8)
    palette, index = _few_colours(_on_white(pixels))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    data = np.concatenate([np.zeros((height, 1), np.uint8), index], axis=1)
    parts = [
        (b"IHDR", header),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(data.tobytes(), 9)),
        (b"IEND", b""),
    ]
    return min(_SIGNATURE + b"".join(_chunk(*part) for part in parts), png, key=len)


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The chunks of a PNG, with the IDAT chunks concatenated."""
    at, data = len(_SIGNATURE), b""
    while at < len(png):
        length, name = struct.unpack(">I4s", png[at : at + 8])
        content = png[at + 8 : at + 8 + length]
        data += content if name == b"IDAT" else b""
        yield name, data if name == b"IDAT" else content
        at += 12 + length


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _on_white(pixels: Bytes) -> Bytes:
    alpha = pixels[..., 3:].astype(np.uint16)
    mixed: NDArray[Any] = (pixels[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255
    return mixed.astype(np.uint8)


def _few_colours(pixels: Bytes) -> tuple[Bytes, Bytes]:
    """A palette uint8[C, 3] of the most frequent colours, and for each pixel the position of the nearest one."""
    code = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    codes, index, counts = np.unique(code, return_inverse=True, return_counts=True)
    colours = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1)
    palette = colours[np.argsort(-counts, kind="stable")[:_COLOURS]].astype(np.float32)
    # Squared distances, minus the term that is constant over the palette.
    nearest = ((palette**2).sum(axis=1) - 2 * colours.astype(np.float32) @ palette.T).argmin(axis=1)
    return palette.astype(np.uint8), nearest.astype(np.uint8)[index].reshape(code.shape)


class Table(NamedTuple):
    """A table of formatted cells. Numeric columns are right-aligned.

    Attributes:
        header: One title per column.
        rows: Rows with one cell per column.
        caption: Caption; may be empty.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    def is_numeric(self, column: int) -> bool:
        """Whether all non-empty cells of a column are numbers."""
        cells = {row[column] for row in self.rows} - _NOTHING
        return bool(cells) and all(_NUMBER.match(cell) for cell in cells)


class Section(NamedTuple):
    """A section: a caption with the finding, then charts and tables.

    Attributes:
        title: Title of the section.
        caption: Plain text; blank lines separate paragraphs.
        figures: Charts by an identifier that is unique in the page; ``width="container"`` fills the available width.
        tables: Tables below the charts.
        code: Code block at the end.
        wide: Stack charts vertically instead of side by side.
    """

    title: str
    caption: str
    figures: Mapping[str, Chart] = {}
    tables: Sequence[Table] = ()
    code: str = ""
    wide: bool = False


class Page(NamedTuple):
    """A report page.

    Attributes:
        title: Heading.
        subtitle: One introductory paragraph.
        headlines: Key figures, each with an explanatory sentence.
        sections: Sections in order.
        name: Title of the browser tab. Default: the heading.
    """

    title: str
    subtitle: str
    headlines: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    name: str = ""

    def write(self, path: Path) -> None:
        """Write the page."""
        path.write_text(self.html(), encoding="utf-8")

    def html(self) -> str:
        """The page as HTML."""
        return _PAGE.substitute(
            name=html.escape(self.name or self.title),
            title=html.escape(self.title),
            subtitle=html.escape(self.subtitle),
            headlines="\n".join(_headline(*headline) for headline in self.headlines),
            sections="\n".join(_section(section) for section in self.sections),
            version=__version__,
            library=_javascript(),
            specs=_json({name: chart.to_dict() for name, chart in self.figures.items()}),
            light=_json(_theme(_LIGHT)),
            dark=_json(_theme(_DARK)),
        )

    @property
    def figures(self) -> dict[str, Chart]:
        """All charts of the page, by identifier."""
        figures: dict[str, Chart] = {}
        for section in self.sections:
            if twice := figures.keys() & section.figures.keys():
                raise InvalidOption(f"page {self.title!r}: two figures have the identifier {min(twice)!r}")
            figures |= section.figures
        return figures


def png(chart: Chart, width: int = 560, scale: float = 1.6) -> bytes:
    """A chart as a PNG on white; `width`, in pixels before scaling, is for charts that fill their container."""
    spec = _with_width(chart.to_dict(), width)
    config = {**_theme(_LIGHT), "background": "white", "padding": 12}
    picture: bytes = vl_convert.vegalite_to_png(spec, vl_version=_vega_lite(), scale=scale, config=config)
    return reduce_png(picture)


def _with_width(spec: Any, width: int) -> Any:
    """The specification with the width "container" replaced by a number."""
    if isinstance(spec, dict):
        return {
            key: width if (key, value) == ("width", "container") else _with_width(value, width)
            for key, value in spec.items()
        }
    return [_with_width(part, width) for part in spec] if isinstance(spec, list) else spec


class _Palette(NamedTuple):
    ink: str
    soft: str
    line: str


_LIGHT = _Palette(ink="#1f2328", soft="#5f6670", line="#e3e5e8")
_DARK = _Palette(ink="#e4e6e9", soft="#9aa1ab", line="#30353c")


def _theme(palette: _Palette) -> dict[str, Any]:
    """The Vega-Lite configuration of a theme."""
    ink, soft, line = palette
    text = {"labelColor": soft, "titleColor": soft, "labelFontSize": 12, "titleFontSize": 12}
    text = {**text, "titleFontWeight": "normal"}
    return {
        "background": "transparent",
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": {**text, "gridColor": line, "domainColor": line, "tickColor": line},
        "legend": text,
        "header": {**text, "labelColor": ink},
        "title": {"color": ink, "fontSize": 13, "anchor": "start"},
    }


def _headline(figure: str, text: str) -> str:
    return f"<div><strong>{html.escape(figure)}</strong><span>{html.escape(text)}</span></div>"


def _section(section: Section) -> str:
    paragraphs = "".join(f"<p>{html.escape(text)}</p>" for text in section.caption.split("\n\n"))
    charts = "".join(f'<div class="chart"><div id="{name}"></div></div>' for name in section.figures)
    parts = [f"<h2>{html.escape(section.title)}</h2>{paragraphs}"]
    if charts:
        parts.append(f'<div class="charts{" wide" * section.wide}">{charts}</div>')
    parts += [_table(table) for table in section.tables]
    if section.code:
        parts.append(f"<pre>{html.escape(section.code)}</pre>")
    return f"<section>{''.join(parts)}</section>"


def _table(table: Table) -> str:
    kinds = ["number" if table.is_numeric(column) else "words" for column in range(len(table.header))]
    lines = [_cells("th", table.header, kinds), *(_cells("td", row, kinds) for row in table.rows)]
    caption = f"<p>{html.escape(table.caption)}</p>" if table.caption else ""
    return f'{caption}<div class="table"><table>{"".join(lines)}</table></div>'


def _cells(tag: str, cells: Sequence[str], kinds: Sequence[str]) -> str:
    inside = (f'<{tag} class="{kind}">{html.escape(cell)}</{tag}>' for cell, kind in zip(cells, kinds, strict=True))
    return f"<tr>{''.join(inside)}</tr>"


def _json(value: object) -> str:
    # A script element ends at the first "</", even inside a string.
    return json.dumps(value).replace("</", "<\\/")


@cache
def _javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script."""
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed", vl_version=_vega_lite())
    return script.replace("</script", "<\\/script")


def _vega_lite() -> str:
    """The version of Vega-Lite that Altair writes for."""
    major, minor = alt.SCHEMA_VERSION.lstrip("v").split(".")[:2]
    return f"{major}.{minor}"
