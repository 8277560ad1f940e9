"""dsjson logs as tables: every line is a row, an outcome, or counted by reason; Vowpal Wabbit reads the same labels."""

import contextlib
import gzip
import json

import msgspec
import numpy as np
import polars as pl
import pytest
from dsjson_examples import DRINKS, event, log, write
from hypothesis import given
from hypothesis import strategies as st

from potstill.errors import InvalidLog
from potstill.problem import Boolean, Categorical
from potstill.tables import UnreadableTable
from potstill.tables.dsjson import convert_dsjson, dsjson_history
from potstill.tables.dsjson.line import Event, UnfitLine, parse_line


def convert(tmp_path, lines, **options):
    folder = tmp_path / "table"
    folder.mkdir()
    places = [lines] if isinstance(lines, str) else [write(tmp_path / "log.json", lines)]
    found = convert_dsjson(places, folder, **options)
    report = found.report
    assert report.lines == report.events + report.outcomes + sum(left.lines for left in report.left_out.values())
    return found, pl.read_parquet(found.table)


def test_an_event_by_hand(tmp_path):
    first = event(7, 1, -0.5, 0.25, pdrop=0.75)
    second = event(8, 0, 0.0, 0.5, Timestamp="2021-02-04T16:31:29Z")
    found, table = convert(tmp_path, [first, second])
    assert table.to_dicts()[0] == {
        "_id": "e7",
        "_time": table["_time"][0],
        "_action": "Mocha",
        "_propensity": 0.25,
        "_reward": 0.5,
        "_eligible": None,
        "_weight": 4.0,
        "time": "Morning",
        "user.age": 27,
    }
    assert str(table["_time"][0]) == "2021-02-04 16:00:07.246000+00:00"
    assert str(table["_time"][1]) == "2021-02-04 16:31:29+00:00"
    assert found.actions == sorted(DRINKS)
    assert (found.report.named_by, found.report.weighted, found.report.action_features) == ("tag", 1, True)


def test_vowpal_wabbit_reads_the_same_labels(tmp_path):
    pyvw = pytest.importorskip("vowpalwabbit").pyvw
    lines = log(60) + [event(100 + i, i % 3, -i / 7, 0.1 + i / 20) for i in range(9)]
    _, table = convert(tmp_path, lines)
    vw = pyvw.Workspace("--dsjson --cb_adf --quiet")
    for row, line in zip(table.to_dicts(), lines, strict=True):
        examples = vw.parse(json.dumps(line))
        # The first example is that of the shared features.
        labels = {
            i: one.get_label(pyvw.LabelType.CONTEXTUAL_BANDIT).costs
            for i, one in enumerate(examples[1:])
            if i < len(DRINKS)
        }
        vw.finish_example(examples)
        (chosen,) = [i for i, costs in labels.items() if costs]
        label = labels[chosen][0]
        assert DRINKS[chosen] == row["_action"]
        assert np.float32(-row["_reward"]) == np.float32(label.cost)
        assert np.float32(row["_propensity"]) == np.float32(label.probability)
    vw.finish()


def test_lines_that_cannot_be_imported_are_counted_by_reason_and_place(tmp_path):
    good = event(0, 0, -1.0, 0.5)
    c = good["c"]
    truncated = json.dumps(event(1, 0, -1.0, 0.5))[:200]
    lines = [
        good,
        truncated,
        "[1, 2]",
        {"Version": "1"},
        event(2, 0, -1.0, 0.5, c={**c, "_slots": [{}]}),
        event(3, 0, -1.0, 0.5, c={**c, "_multi": []}),
        event(4, 0, -1.0, 0.5, c={"FromUrl": []}),
        event(5, 0, -1.0, 0.5, _labelIndex=5, _label_Action=6),
        event(6, 0, -1.0, 0.5, _labelIndex=1),
        event(7, 0, -1.0, 0.0),
        event(8, 0, -1.0, 1.5),
        event(9, 0, -1.0, 0.5, _label_cost="much"),
        event(10, 0, -1.0, 0.5, pdrop=1.0),
        event(11, 0, -1.0, 0.5, _skipLearn=True),
        event(12, 0, -1.0, 0.5, _original_label_cost=0.0),
        event(13, 0, -1.0, 0.5, _label_ca={"action": 3}),
        good,
        event(14, 0, -1.0, 0.5, c={**c, "_multi": [{"_tag": "Tea"}, {"_tag": "Tea"}]}),
        event(15, 0, 0.0, 0.5, DeferredAction=True, o=None),
        event(16, 0, -1.0, 0.5, c={**c, "FromUrl": json.loads("[" * 50 + "]" * 50)}),
        "",
        event(99, 1, 0.0, 0.5),
    ]
    # The other lines name actions by tag, and so does one that has two of the same.
    found, table = convert(tmp_path, lines, named_by="tag")
    assert table["_id"].to_list() == ["e0", "e99"]
    reasons = {reason.split(" (")[0].split(":")[0]: left.lines for reason, left in found.report.left_out.items()}
    assert reasons == {
        "damaged or truncated": 1,
        "neither an event with `c` nor an outcome with `EventId`": 2,
        "several slots in one event": 1,
        "no list of actions": 2,
        "the chosen action is not one of those offered": 2,
        "no probability of the chosen action in": 2,
        "the cost or reward is not a finite number": 1,
        "`pdrop` is not in [0, 1)": 1,
        "`_skipLearn`": 1,
        "apprentice mode": 1,
        "the action is a number": 1,
        "the event was logged before": 1,
        "actions cannot be told apart by their _tag": 1,
        "deferred, and not activated": 1,
        "features are nested too deeply": 1,
    }
    (places,) = [left.places for reason, left in found.report.left_out.items() if reason.startswith("damaged")]
    assert places == [f"{tmp_path / 'log.json'}:2"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [*event(0, 0, -1.0, 0.5), "pdrop", "_skipLearn", "_ba", "DeferredAction", "v", "RewardValue", "Observations"]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=3), st.dictionaries(st.text(), JSON))
def test_any_json_is_an_event_an_outcome_or_unfit(fields, c):
    for line in ({**event(0, 0, -1.0, 0.5), **fields}, {**event(0, 0, -1.0, 0.5, c={"_multi": [{}], **c}), **fields}):
        with contextlib.suppress(UnfitLine):
            found = parse_line(msgspec.json.encode(line))
            if isinstance(found, Event):
                assert 0 < found.propensity <= 1
                assert 0 <= found.chosen < len(found.offered)


@given(st.binary(max_size=200))
def test_any_bytes_are_read(line):
    with contextlib.suppress(UnfitLine):
        parse_line(line)
    cut = json.dumps(event(0, 0, -1.0, 0.5)).encode()
    with pytest.raises(UnfitLine, match="damaged"):
        parse_line(cut[: len(line) % len(cut)] or b"{")


def test_nothing_to_import_says_why(tmp_path):
    with pytest.raises(InvalidLog, match=r"1 × damaged or truncated: not JSON \(.*log.json:1\)"):
        convert(tmp_path, ["{"])


def test_a_truncated_gzip_loses_only_its_end(tmp_path):
    lines = b"".join(json.dumps(one).encode() + b"\n" for one in log(3_000))
    packed = gzip.compress(lines)
    cut = tmp_path / "log.json.gz"
    cut.write_bytes(packed[: len(packed) // 2])
    found, table = convert(tmp_path, str(cut))
    assert 500 < len(table) < 3_000
    assert table["_id"].to_list() == [f"e{i}" for i in range(len(table))]
    assert sum("cannot be read" in reason for reason in found.report.left_out) == 1
    whole = tmp_path / "whole.gz"
    whole.write_bytes(packed)
    (tmp_path / "again").mkdir()
    assert convert_dsjson([str(whole)], tmp_path / "again").report.events == 3_000


def test_outcomes_that_were_logged_apart_are_joined(tmp_path):
    bare = {"_label_cost": None, "_label_probability": None, "_label_Action": None, "_labelIndex": None, "o": None}
    bare["_original_label_cost"] = None
    lines = [
        {"RewardValue": 0.75, "EnqueuedTimeUtc": "2021-02-04T17:00:00Z", "EventId": "e1"},
        event(1, 2, 0, 0.5, **bare),
        event(2, 1, 0, 0.5, **bare),
        event(3, 0, 0.0, 0.5, o=None),
        {"EventId": "e3", "v": 0.5},
        event(4, 0, -0.25, 0.5),
        {"EventId": "e4", "v": 9.0},  # came after the label was worked out
        event(5, 1, 0.0, 0.5, DeferredAction=True, o=None),
        {"EventId": "e5", "DeferredAction": False, "RewardValue": None, "Observations": [{"v": 1.0}]},
        event(6, 1, -1.0, 0.5, _deferred=True, o=[{"v": 1.0}, {"ActionTaken": True}]),
        {"EventId": "nobody", "v": 1.0},
    ]
    found, table = convert(tmp_path, lines)
    assert dict(table.select("_id", "_reward").rows()) == {
        "e1": 0.75,
        "e2": 0.0,
        "e3": 0.5,
        "e4": 0.25,
        "e5": 1.0,
        "e6": 1.0,
    }
    # Without a label, the first action of the ranking was chosen, with the probability there.
    assert table["_action"].to_list()[:2] == ["Tea", "Mocha"]
    assert table["_propensity"].to_list()[:2] == [0.5, 0.5]
    assert (found.report.outcomes, found.report.dangling) == (5, 1)


@pytest.mark.parametrize(
    ("multi", "rule", "names"),
    [
        ([{"_tag": "b"}, {"_tag": "a"}], "tag", ["b", "a"]),
        ([{"i": {"id": 7.0}}, {"i": {"id": "x"}}], "id", ["7", "x"]),
        ([{"A": {"size": 1, "red": True}}, {"A": {"size": 2.5}}], "features", ["A.red=true, A.size=1", "A.size=2.5"]),
        ([{"A": {"f": 0}}, {"A": {"f": 0}}], "index", ["1", "2"]),
        ([{}, {}], "index", ["1", "2"]),
        ([{"_tag": "same"}, {"_tag": "same", "id": 1}], "index", ["1", "2"]),
    ],
)
def test_names_of_actions(tmp_path, multi, rule, names):
    lines = [event(i, i % 2, 0, 0.5, c={"x": i, "_multi": multi}) for i in range(4)]
    found, table = convert(tmp_path, lines)
    assert found.report.named_by == rule
    assert table["_action"].to_list() == [names[0], names[1]] * 2


def test_offered_actions_are_eligible_where_they_are_not_all(tmp_path):
    multi = [{"_tag": name} for name in DRINKS]
    lines = [
        event(0, 0, 0, 0.5, c={"x": 1, "_multi": multi}),
        event(1, 1, 0, 0.5, c={"x": 2, "_multi": multi[1:]}, a=[2, 1]),
    ]
    found, table = convert(tmp_path, lines)
    assert table["_eligible"].to_list() == [None, ["Mocha", "Tea"]]
    assert table["_action"].to_list() == ["Latte", "Tea"]
    assert found.report.restricted == 1


def test_too_many_names_are_refused_and_an_index_is_offered(tmp_path):
    lines = [event(i, 0, 0, 0.5, c={"_multi": [{"_tag": f"{i}a"}, {"_tag": f"{i}b"}]}) for i in range(600)]
    with pytest.raises(InvalidLog, match=r"more than 1,000 actions by their _tag.*--names index"):
        convert(tmp_path, lines, named_by="tag")
    (tmp_path / "table").rename(tmp_path / "before")
    assert convert(tmp_path, lines)[0].report.named_by == "index"


def test_types_of_features_are_the_narrowest_that_hold_all_values(tmp_path):
    values = [
        {"whole": 1, "real": 1, "flag": True, "mixed": 1, "list": [1, 2], "a=1": 1, "zero": 0.0, "tags": ["x"]},
        {"whole": 2, "real": 0.5, "flag": False, "mixed": "two", "list": [0.5, 1], "zero": 0.0, "big": 2**70},
        {"whole": 3, "real": 2, "mixed": True, "list": [3, 3], "a=1": 1, "zero": 0.0, "_hidden": 5, "none": None},
    ]
    multi = [{"_tag": "a"}, {"_tag": "b"}]
    found, table = convert(tmp_path, [event(i, 0, -i, 0.5, c={"N": x, "_multi": multi}) for i, x in enumerate(values)])
    assert {name: dtype for name, dtype in table.schema.items() if name[0] != "_"} == {
        "N.whole": pl.Int64,
        "N.real": pl.Float64,
        "N.flag": pl.Boolean,
        "N.mixed": pl.String,
        "N.list": pl.List(pl.Float64),
        "N.a=1": pl.Boolean,
        "N.zero": pl.Float64,
        "N.tags.x": pl.Boolean,
        "N.big": pl.Boolean,
    }
    assert table["N.mixed"].to_list() == ["1", "two", "true"]
    assert table["N.a=1"].to_list() == [True, False, True]
    assert found.indicators == {"N.a=1", "N.tags.x", "N.big"}


def test_of_too_many_features_the_most_frequent_are_columns(tmp_path):
    contexts = [{"Age": i, **({"age": i} if i else {}), **{f"f{i}_{j}": j for j in range(300)}} for i in range(4)]
    multi = [{"_tag": "a"}, {"_tag": "b"}]
    found, table = convert(tmp_path, [event(i, 0, -i, 0.5, c={**x, "_multi": multi}) for i, x in enumerate(contexts)])
    names = [name for name in table.columns if name[0] != "_"]
    assert (len(names), names[0], "age" in names) == (1_000, "Age", False)
    assert found.report.left_out_features == 1_202 - 1_000


def test_the_problem_of_a_log(tmp_path):
    lines = log(300)
    for one in lines[::2]:
        one["c"]["FromUrl"].append({"a=1": 1})
    found, _ = convert(tmp_path, lines)
    problem = dsjson_history(found, "drinks", "log.json", without=["user.age"]).problem
    assert problem.actions.names == tuple(sorted(DRINKS))
    assert problem.context == (
        Categorical("time", ["Evening", "Morning"]),
        Boolean("a=1", missing=False),
    )
    assert problem.reward.kind == "yes/no"
    assert all(feature.optional for feature in problem.context)


def test_files_are_checked(tmp_path):
    path = write(tmp_path / "log.json", log(3))
    with pytest.raises(UnreadableTable, match="no such file"):
        convert_dsjson([path, str(tmp_path / "none")], tmp_path)
    with pytest.raises(UnreadableTable, match="stated twice"):
        convert_dsjson([path, path], tmp_path)


def test_whole_numbers_beyond_floats_are_no_costs_and_missing_as_features(tmp_path):
    lines = log(40)
    lines[3].update(_label_cost=10**400)
    lines[4]["c"]["FromUrl"].append({"size": 10**400})
    lines[5]["c"]["FromUrl"].append({"size": -(10**400)})
    lines[6]["c"]["FromUrl"].append({"size": 7})
    found, table = convert(tmp_path, [*lines, {"EventId": "e7", "RewardValue": 10**400}])
    reasons = {reason: left.lines for reason, left in found.report.left_out.items()}
    assert reasons == {"the cost or reward is not a finite number": 2}
    assert table.filter(pl.col("size").is_not_null())["size"].to_list() == [7]


def test_logs_without_an_event_say_what_they_hold(tmp_path):
    with pytest.raises(InvalidLog, match="3 × an outcome of an event that is not in these logs"):
        convert(tmp_path, [{"EventId": f"e{i}", "RewardValue": 1.0} for i in range(3)])
    with pytest.raises(UnreadableTable, match=r"is a folder: name its files"):
        convert_dsjson([str(tmp_path)], tmp_path)


def test_names_that_no_column_can_have_are_left_out(tmp_path):
    lines = log(60)
    for number, line in enumerate(lines):
        line["c"]["FromUrl"].append({"*": number % 3, "^a.*$": number % 4, "number of the row": number % 5})
    found, _ = convert(tmp_path, lines)
    assert found.report.left_out_features == 3
    assert [feature.name for feature in dsjson_history(found, "t", "logs").problem.context] == ["time", "user.age"]


def test_one_action_is_refused(tmp_path):
    lines = log(60)
    for line in lines:
        line.update(_labelIndex=0, _label_Action=1, a=[1], p=[1.0])
        line["c"]["_multi"] = line["c"]["_multi"][:1]
    with pytest.raises(InvalidLog, match=r"logs: the only action is .*; with one action there is nothing to compare"):
        dsjson_history(convert(tmp_path, lines)[0], "t", "logs")
