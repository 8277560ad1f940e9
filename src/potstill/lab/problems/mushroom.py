"""Mushrooms: eat or abstain, judged by appearance; a poisoning costs seven times what a meal earns (UCI id 73)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import polars as pl

from potstill.lab.problems import data
from potstill.lab.problems.table import ClassificationProblem, RewardTable

COLUMNS = (
    "class",
    "cap-shape",
    "cap-surface",
    "cap-color",
    "bruises",
    "odor",
    "gill-attachment",
    "gill-spacing",
    "gill-size",
    "gill-color",
    "stalk-shape",
    "stalk-root",
    "stalk-surface-above-ring",
    "stalk-surface-below-ring",
    "stalk-color-above-ring",
    "stalk-color-below-ring",
    "veil-type",
    "veil-color",
    "ring-number",
    "ring-type",
    "spore-print-color",
    "population",
    "habitat",
)
#: Rewards by class: edible, poisonous. Half of the poisonous ones do no harm.
REWARDS: RewardTable = {"e": {"abstain": 0, "eat": 5}, "p": {"abstain": 0, "eat": (5, -35)}}


@cache
def mushroom() -> ClassificationProblem:
    """The paper's mushroom problem: 8,124 of them, drawn with replacement.

    The 22 features take 117 different values, including ``?`` for an unknown stalk root, which gives the paper's 117
    one-hot columns. Encoded contexts have 139: Potstill adds one column per feature for unlisted values. These are 0 in
    every row of this table, so that no algorithm learns anything from them.
    """
    path = data.find(data.MUSHROOM.name)
    found = read(path)
    data.MUSHROOM.check(found.rows, path)
    return found


def read(path: Path) -> ClassificationProblem:
    """The problem of a file in UCI's format: no header, the class first."""
    table = pl.read_csv(path, has_header=False, new_columns=COLUMNS, infer_schema=False)
    return ClassificationProblem(table, label="class", rewards=REWARDS, name="mushroom")
