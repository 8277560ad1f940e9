"""Warfarin: the weekly dose a patient needs, from what a doctor knows before the first dose (IWPC 2009).

The paper's cohort is 4,788 patients with 17 features, selected by a rule that it does not state. Here it is all 5,528
patients with a known dose, and these 17 columns:

    age (the decade, missing: 60)          1      CYP2C9 *2 alleles, 0 to 2; missing      2
    height, weight; each with a flag       4      CYP2C9 *3 or rarer alleles, 0 to 2      1
    male (missing: true)                   1      VKORC1 -1639 A alleles, 0 to 2; missing 2
    White, Asian, Black, or other          4      amiodarone, an enzyme inducer           2

Genotypes are counts of the alleles that lower the dose, as in dosing algorithms; nothing is imputed from other sites of
the genome. Enzyme inducers are carbamazepine, phenytoin and rifampin; a drug that the record does not mention counts as
not taken.

Levels range from 0 to 92.5 mg per week. The reward is 1 - |level - dose| / 92.5, with doses capped at 92.5.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import polars as pl

from potstill.lab.problems import data
from potstill.lab.problems.numbers import TableDose
from potstill.lab.problems.table import DoseProblem
from potstill.problem import Boolean, Categorical, Feature, Numeric

#: Largest level, mg per week. 28 of 5,528 doses are larger; levels up to the largest, 315, would mostly be unused.
HIGHEST = 92.5

FEATURES: tuple[Feature, ...] = (
    Numeric("age", low=10, high=90, missing=60),
    Numeric("height_cm", low=125, high=202, missing="flag"),
    Numeric("weight_kg", low=30, high=160, missing="flag"),
    Boolean("male", missing=True),
    Categorical("race", ["White", "Asian", "Black or African American"]),
    Numeric("cyp2c9_2", low=0, high=2, missing="flag"),
    Numeric("cyp2c9_3", low=0, high=2, missing=0),
    Numeric("vkorc1_a", low=0, high=2, missing="flag"),
    Boolean("amiodarone"),
    Boolean("enzyme_inducer"),
)
_INDUCERS = ("Carbamazepine (Tegretol)", "Phenytoin (Dilantin)", "Rifampin or Rifampicin")


@cache
def warfarin(levels: int = 20, resample: bool = False) -> DoseProblem:
    """The paper's dosing problem.

    Args:
        levels: Evenly spaced doses from 0 to 92.5 mg per week.
        resample: Draw patients with replacement; if not, a trial uses each at most once.
    """
    path = data.find(data.WARFARIN.name)
    table = patients(path)
    data.WARFARIN.check(len(table), path)
    return DoseProblem(
        table,
        target="dose",
        levels=levels,
        low=0,
        high=HIGHEST,
        features=FEATURES,
        name=f"warfarin-{levels}",
        resample=resample,
    )


@cache
def warfarin_numbers() -> TableDose:
    """The same patients with any dose from 0 to 92.5 mg per week; each at most once in a trial."""
    path = data.find(data.WARFARIN.name)
    table = patients(path)
    data.WARFARIN.check(len(table), path)
    return TableDose(table, dose="dose", low=0, high=HIGHEST, features=FEATURES, name="warfarin-dose", resample=False)


@cache
def patients(path: Path) -> pl.DataFrame:
    """The consortium's table as the features above, and the dose in mg per week."""
    raw = pl.read_csv(path, infer_schema=False, null_values=["NA", ""])
    cyp2c9, vkorc1 = pl.col("CYP2C9 consensus"), pl.col("VKORC1 -1639 consensus")
    return raw.select(
        age=pl.col("Age").str.slice(0, 2).cast(pl.Float64),
        height_cm=pl.col("Height (cm)").cast(pl.Float64),
        weight_kg=pl.col("Weight (kg)").cast(pl.Float64),
        male=pl.col("Gender") == "male",
        race=pl.col("Race"),
        cyp2c9_2=cyp2c9.str.count_matches(r"\*2\b").cast(pl.Float64),
        cyp2c9_3=cyp2c9.str.count_matches(r"\*([3-9]|1\d)\b").cast(pl.Float64),
        vkorc1_a=vkorc1.str.count_matches("A").cast(pl.Float64),
        amiodarone=_taken("Amiodarone (Cordarone)"),
        enzyme_inducer=pl.any_horizontal(_taken(drug) for drug in _INDUCERS),
        dose=pl.col("Therapeutic Dose of Warfarin").cast(pl.Float64),
    )


def _taken(drug: str) -> pl.Expr:
    return (pl.col(drug).cast(pl.Float64) == 1).fill_null(False)
