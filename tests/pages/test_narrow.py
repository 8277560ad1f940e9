"""A page fits a phone: nothing but charts, tables and code scrolls sideways."""

import re
import shutil
import subprocess

import altair as alt
import pytest
from js.test_chromium import QUIET

from potstill.pages import Page, Section

WIDTH = 390
#: The page in a frame of a phone's width; the outer page says how wide the content wants to be.
FRAME = """<iframe id="phone" src="page.html" width="{width}" height="3000"></iframe><p id="found"></p>
<script>
setTimeout(() => {{
  const page = document.getElementById("phone").contentDocument;
  document.getElementById("found").textContent = `wants ${{page.documentElement.scrollWidth}}, `
    + `chart ${{page.querySelector(".chart > div").clientWidth}}`;
}}, 6000);
</script>"""


def test_a_page_fits_390_pixels(tmp_path):
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not on the PATH")
    chart = alt.Chart(alt.InlineData([{"a": "a label that is long enough to fill half a phone", "b": 1}]))
    section = Section(
        "A title",
        "a caption with a word-that-has-" + "no-end" * 20,
        figures={"figure": chart.mark_bar().encode(x="b:Q", y="a:N").properties(width="container")},
    )
    Page("Narrow", "A subtitle", [("1,000", "of everything")], [section]).write(tmp_path / "page.html")
    (tmp_path / "frame.html").write_text(FRAME.format(width=WIDTH))
    options = ["--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}"]
    options += ["--virtual-time-budget=15000", "--window-size=800,3200", "--dump-dom"]
    command = [browser, *QUIET, *options, (tmp_path / "frame.html").as_uri()]
    said = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout
    wants, chart_width = map(int, re.search(r"wants (\d+), chart (\d+)<", said).groups())
    assert wants <= WIDTH
    assert chart_width >= 500  # its labels leave room for the bars
