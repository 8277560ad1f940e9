"""Warfarin's patients are read as documented, and the best dose costs nothing."""

import numpy as np
import pytest
from real_data import needs

from potstill.lab.problems import data
from potstill.lab.problems.environment import regrets
from potstill.lab.problems.warfarin import FEATURES, HIGHEST, patients, warfarin

HEADER = (
    "Age,Height (cm),Weight (kg),Gender,Race,CYP2C9 consensus,VKORC1 -1639 consensus,Amiodarone (Cordarone),"
    "Carbamazepine (Tegretol),Phenytoin (Dilantin),Rifampin or Rifampicin,Therapeutic Dose of Warfarin\n"
)


@pytest.fixture
def three(tmp_path):
    path = tmp_path / "three.csv"
    path.write_text(
        HEADER
        + "60 - 69,193.04,115.7,male,White,*2/*3,A/G,0,NA,0,0,49.00\n"
        + "90+,NA,NA,NA,Unknown,NA,NA,NA,NA,NA,NA,21\n"
        + "10 - 19,150,50,female,Asian,*1/*11,A/A,1,0,1,0,NA\n"
    )
    return patients(path).to_dicts()


def test_a_patient_of_whom_all_is_known(three):
    assert three[0] == {
        "age": 60,
        "height_cm": 193.04,
        "weight_kg": 115.7,
        "male": True,
        "race": "White",
        "cyp2c9_2": 1,
        "cyp2c9_3": 1,
        "vkorc1_a": 1,
        "amiodarone": False,
        "enzyme_inducer": False,
        "dose": 49,
    }


def test_what_is_not_known_is_missing_but_drugs_are_not_taken(three):
    known = {"age": 90, "race": "Unknown", "amiodarone": False, "enzyme_inducer": False, "dose": 21}
    assert three[1] == {feature.name: None for feature in FEATURES} | known


def test_rare_variants_count_with_the_third_and_one_inducer_is_enough(three):
    assert (three[2]["cyp2c9_2"], three[2]["cyp2c9_3"], three[2]["vkorc1_a"]) == (0, 1, 2)
    assert three[2]["amiodarone"] is True
    assert three[2]["enzyme_inducer"] is True
    assert three[2]["dose"] is None


@needs(data.WARFARIN)
@pytest.mark.parametrize("levels", [20, 50])
def test_5528_patients_with_17_columns(levels):
    problem = warfarin(levels)
    assert (problem.rows, problem.dropped) == (5528, 172)
    assert problem.problem.width == 17
    assert len(problem.problem.actions) == levels
    encoded = problem.encode({"row": np.arange(5528)})
    assert encoded.min() >= 0
    assert encoded.max() <= 1
    # No column is constant.
    assert (encoded.std(axis=0) > 0).all()


@needs(data.WARFARIN)
@pytest.mark.parametrize("levels", [20, 50])
def test_regret_is_never_negative_and_0_for_the_level_nearest_to_the_dose(levels):
    problem = warfarin(levels)
    means = problem.means({"row": np.arange(problem.rows)})
    dose = patients(data.find(data.WARFARIN.name)).drop_nulls("dose")["dose"].to_numpy()
    nearest = np.abs(problem.levels - np.minimum(dose, HIGHEST)[:, None]).argmin(axis=1)
    assert regrets(means, nearest).max() < 1e-12
    for action in range(levels):
        assert regrets(means, np.full(problem.rows, action)).min() >= 0


@needs(data.WARFARIN)
@pytest.mark.parametrize(("levels", "expected"), [(20, 0.3036), (50, 0.3055)])
def test_regret_of_a_uniform_policy(levels, expected):
    problem = warfarin(levels)
    means = problem.means({"row": np.arange(problem.rows)})
    assert np.mean(means.max(axis=1) - means.mean(axis=1)) == pytest.approx(expected, abs=5e-5)
    # The same from the doses alone, without the lab's means.
    dose = np.minimum(patients(data.find(data.WARFARIN.name))["dose"].drop_nulls().to_numpy(), HIGHEST)
    off = np.abs(np.linspace(0, HIGHEST, levels) - dose[:, None]) / HIGHEST
    assert np.mean(off.mean(axis=1) - off.min(axis=1)) == pytest.approx(expected, abs=5e-5)


@needs(data.WARFARIN)
def test_a_reshuffled_trial_meets_every_patient_once_and_no_more():
    rows = warfarin(20).contexts(5528, np.random.default_rng(0))["row"]
    np.testing.assert_array_equal(np.sort(rows), np.arange(5528))
    with pytest.raises(ValueError, match="5529 decisions need 5529 rows and the table has 5528"):
        warfarin(20).contexts(5529, np.random.default_rng(0))
    assert len(warfarin(20, resample=True).contexts(50_000, np.random.default_rng(0))["row"]) == 50_000
