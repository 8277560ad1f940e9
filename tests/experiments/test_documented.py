"""What the pages say to write into an experiment's files is accepted."""

import re
from pathlib import Path

from potstill.experiments.rules import read_rules
from potstill.problem import Problem
from potstill.workspace import read_config, template

PAGE = Path(__file__).parents[2] / "docs" / "service.md"


def test_the_section_and_the_rules_of_the_page_are_accepted():
    files = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (section,) = (text for text in files if text.startswith("[experiment]"))
    (rules,) = (text for text in files if text.startswith("# rules.toml"))
    problem = Problem.from_toml(template.PROBLEM.encode(), "problem.toml")
    experiment = read_config(section.encode()).experiment
    assert experiment is not None
    experiment.check(problem)
    assert (
        experiment == read_config(re.sub(r"^# (\[exp|\w+ = )", r"\1", template.CONFIG, flags=re.M).encode()).experiment
    )
    decided = read_rules(rules.encode(), problem, "rules.toml")
    assert decided.action((6000.0, "wifi", True)) == "720p"
    assert decided.action((900.0, "4g", True)) == "480p"
    assert decided.action((900.0, "3g", True)) == "360p"
