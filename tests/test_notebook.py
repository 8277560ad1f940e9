"""The notebook's cells run one after another, and its stored outputs are what they print."""

import contextlib
import io
import json
import re
from pathlib import Path

NOTEBOOK = Path(__file__).parents[1] / "examples" / "from-a-table.ipynb"
NUMBER = re.compile(r"[-+]?\d[\d,.]*")


def test_its_cells_run_and_print_what_it_shows(tmp_path, monkeypatch):
    """Words to the letter, numbers to a hundredth: other processors round differently."""
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 7
    names: dict[str, object] = {}
    for number, cell in enumerate(cells):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
        shown = "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")
        assert NUMBER.sub("#", printed.getvalue()) == NUMBER.sub("#", shown)
        found, stored = (
            [float(text.replace(",", "").rstrip(".")) for text in NUMBER.findall(one)]
            for one in (printed.getvalue(), shown)
        )
        assert all(abs(a - b) <= 0.01 * max(1.0, abs(b)) for a, b in zip(found, stored, strict=True)), (found, stored)
    assert (tmp_path / "shop.policy").exists()
