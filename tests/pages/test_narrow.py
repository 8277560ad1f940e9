"""A page fits a phone: nothing but charts, tables and code scrolls sideways."""

import re
import shutil
import subprocess

import altair as alt
import pytest
from js.test_chromium import QUIET

from potstill.pages import Page, Section

#: Widths of a phone and of a window, in pixels, and of the narrowest chart in each.
PHONE, WINDOW = (390, 500), (1100, 900)
#: The page in a frame of a phone's width; the outer page says how wide the content wants to be.
FRAME = """<iframe id="phone" src="page.html" width="{width}" height="3000"></iframe><p id="found"></p>
<script>
setTimeout(() => {{
  const page = document.getElementById("phone").contentDocument;
  document.getElementById("found").textContent = `wants ${{page.documentElement.scrollWidth}}, `
    + `chart ${{page.querySelector(".chart > div").clientWidth}}`;
}}, 6000);
</script>"""


@pytest.mark.parametrize(("width", "least"), [PHONE, WINDOW])
def test_a_page_fits_and_its_charts_fill_it(tmp_path, width, least):
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
    (tmp_path / "frame.html").write_text(FRAME.format(width=width))
    options = ["--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}"]
    options += ["--virtual-time-budget=15000", "--window-size=1300,3200", "--dump-dom"]
    command = [browser, *QUIET, *options, (tmp_path / "frame.html").as_uri()]
    said = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout
    wants, chart_width = map(int, re.search(r"wants (\d+), chart (\d+)<", said).groups())
    assert wants <= width
    assert chart_width >= least  # its labels leave room for the bars
