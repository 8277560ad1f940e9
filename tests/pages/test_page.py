"""The page: everything in it, nothing fetched, and what it says is what was handed over."""

import json
import struct
import zlib
from html.parser import HTMLParser

import altair as alt
import numpy as np
import polars as pl
import pytest
import vl_convert

from potstill.pages import Page, Section, Table, png, reduce_png

TABLE = Table(("algorithm", "regret", "verdict"), [("TS <b>", "12 ± 3", "worse"), ("IL", "–", "3 % better")], "Sums.")


def chart():
    data = pl.DataFrame({"x": [0, 1], "y": [0.0, 2.0]})
    return alt.Chart(data, width="container", height=100).mark_line().encode(x="x:Q", y="y:Q")


@pytest.fixture(scope="module")
def page():
    section = Section("Found & seen", "First.\n\nSecond </script>.", {"one": chart(), "two": chart()}, [TABLE], "a < b")
    return Page("A title", "What was run.", [("1.02×", "the regret.")], [section], name="Tab")


class Parsed(HTMLParser):
    """The text of a page by the tag around it, and what it would fetch."""

    def __init__(self, text):
        super().__init__()
        self.fetched, self.ids, self.found, self._open = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self._open = tag
        self.fetched += [value for name, value in attributes if name in ("src", "href", "srcset", "data")]
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_data(self, data):
        if data.strip():
            self.found.append((self._open, data))

    def inside(self, tag):
        return [data for around, data in self.found if around == tag]


def test_everything_that_was_handed_over_is_there_and_nothing_is_fetched(page, tmp_path):
    page.write(tmp_path / "page.html")
    parsed = Parsed((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert parsed.fetched == []
    assert parsed.ids == ["one", "two"]
    assert (parsed.inside("title"), parsed.inside("h1"), parsed.inside("h2")) == (
        ["Tab"],
        ["A title"],
        ["Found & seen"],
    )
    assert parsed.inside("td") == ["TS <b>", "12 ± 3", "worse", "IL", "–", "3 % better"]
    assert parsed.inside("pre") == ["a < b"]
    paragraphs = ["What was run.", "First.", "Second </script>.", "Sums."]
    assert [text for text in parsed.inside("p") if "JavaScript" not in text] == paragraphs


def test_a_script_is_not_ended_by_what_data_say():
    data = pl.DataFrame({"x": ["</script><b>"], "y": [1.0]})
    evil = alt.Chart(data).mark_bar().encode(x="x:N", y="y:Q")
    text = Page("t", "s", [], [Section("s", "c", {"evil": evil})]).html()
    assert text.count("</script>") == 2
    script = text.split("const specs = ", 1)[1].split(";\nconst dark", 1)[0]
    assert list(json.loads(script)["evil"]["datasets"].values()) == [[{"x": "</script><b>", "y": 1.0}]]


def test_two_figures_of_one_name_are_refused():
    section = Section("s", "c", {"same": chart()})
    with pytest.raises(ValueError, match="two figures have the identifier 'same'"):
        Page("t", "s", [], [section, section]).html()


def test_columns_of_numbers_are_known_as_such():
    assert [TABLE.is_numeric(column) for column in range(3)] == [False, True, False]
    assert Table(("x",), [("−3",), ("± 2",), ("",)]).is_numeric(0)
    assert not Table(("x",), [("",), ("–",)]).is_numeric(0)


def test_a_picture_is_as_wide_as_asked():
    def size(picture):
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        return int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])

    narrow, wide = size(png(chart(), width=200, scale=1)), size(png(chart(), width=300, scale=1))
    assert wide[0] - narrow[0] == 100
    assert wide[1] == narrow[1]
    doubled = size(png(chart(), width=200, scale=2))
    assert doubled == (2 * narrow[0], 2 * narrow[1])


def test_a_smaller_picture_looks_the_same():
    """Decoded anew, by the definition of the format: a palette, and rows without a filter."""
    spec = chart().properties(width=300).to_dict()
    drawn = vl_convert.vegalite_to_png(spec, vl_version="5.20", scale=2, config={"background": "white"})
    small = reduce_png(drawn)
    assert len(small) < len(drawn) / 2
    assert small[:24] == drawn[:24]
    assert small[24:26] == bytes([8, 3])  # eight bits, by palette
    palette, data = chunk(small, b"PLTE"), zlib.decompress(chunk(small, b"IDAT"))
    width, height = struct.unpack(">II", small[16:24])
    rows = np.frombuffer(data, np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    shown = np.frombuffer(palette, np.uint8).reshape(-1, 3)[rows[:, 1:]]
    error = abs(shown.astype(int) - undone(drawn, width, height))
    assert error.mean() < 0.1
    assert error.max() < 40


def undone(png, width, height):
    """RGB of an opaque picture, pixel by pixel from the left."""
    rows = np.frombuffer(zlib.decompress(chunk(png, b"IDAT")), np.uint8).reshape(height, -1)
    pixels = rows[:, 1:].reshape(height, width, 4).astype(int)
    for x in range(1, width):
        pixels[:, x] = (pixels[:, x] + pixels[:, x - 1]) % 256
    assert (pixels[..., 3] == 255).all()
    return pixels[..., :3]


def chunk(png, name):
    at, found = 8, b""
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        content = png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(
            png[at + 4 : at + 8] + content
        )
        found += content if png[at + 4 : at + 8] == name else b""
        at += 12 + length
    return found


def test_other_pictures_are_left_alone():
    def part(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    grey = struct.pack(">IIBBBBB", 2, 1, 8, 0, 0, 0, 0)
    data = zlib.compress(bytes([0, 10, 20]))
    picture = b"\x89PNG\r\n\x1a\n" + part(b"IHDR", grey) + part(b"IDAT", data) + part(b"IEND", b"")
    assert reduce_png(picture) == picture
