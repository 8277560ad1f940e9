"""The native kernel takes the decisions of the NumPy oracle, whatever the problem, the context and the call."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_examples import GOOD, assert_agree, make_policy, make_problem, needs_native, outcome

import potstill as ps

_native = pytest.importorskip("potstill.policy._native")
pytestmark = needs_native

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)
finite = st.floats(allow_nan=False, allow_infinity=False)
flag = st.sampled_from(["error", "flag"])


@st.composite
def features(draw):
    name, kind = draw(names), draw(st.sampled_from(["linear", "log", "categorical", "boolean"]))
    if kind == "boolean":
        return ps.Boolean(name, missing=draw(flag | st.booleans()))
    if kind == "categorical":
        values = draw(st.lists(names, min_size=1, max_size=40, unique=True))
        return ps.Categorical(name, values, missing=draw(st.sampled_from(["unseen", "error"])))
    low = draw(st.floats(1e-6, 1e3) if kind == "log" else st.floats(-1e6, 1e6))
    high = low + draw(st.floats(1e-3, 1e6)) * max(1.0, abs(low))
    return ps.Numeric(name, low=low, high=high, scale=kind, missing=draw(flag | st.floats(-10, 10)))


@st.composite
def policies(draw):
    listed = draw(st.lists(features(), max_size=8, unique_by=lambda feature: feature.name))
    problem = make_problem(listed, draw(st.integers(2, 40)))
    hidden = draw(st.lists(st.integers(1, 70), max_size=3))
    return make_policy(
        problem,
        hidden,
        seed=draw(st.integers(0, 99)),
        scale=np.float32(draw(st.sampled_from([0.3, 1, 3]))),
        activation=draw(st.sampled_from(["tanh", "relu"])),
        floor=draw(st.sampled_from([0, 0.5, 1])) / len(problem.actions),
        masked=draw(st.booleans()),
    )


def values(feature):
    missing = st.none() if feature.missing != "error" else st.nothing()
    if isinstance(feature, ps.Boolean):
        return st.booleans() | missing
    if isinstance(feature, ps.Categorical):
        return st.sampled_from(feature.values) | names | missing
    return st.floats(feature.low, feature.high) | finite | st.integers(-(10**20), 10**20) | missing


@st.composite
def contexts(draw, problem):
    """A context in any order, perhaps without the features that may be missing."""
    chosen = [f for f in draw(st.permutations(problem.context)) if f.missing == "error" or draw(st.booleans())]
    return {feature.name: draw(values(feature)) for feature in chosen}


def eligibles(problem):
    return st.none() | st.lists(st.sampled_from(problem.actions.names), min_size=1, max_size=9).flatmap(
        lambda chosen: st.sampled_from([chosen, tuple(chosen)])
    )


def floors(problem):
    return st.none() | st.sampled_from([0, 0.0, 1 / len(problem.actions)]) | st.floats(0, 1 / len(problem.actions))


@settings(max_examples=150)
@given(st.data())
def test_it_agrees_with_the_oracle_about_any_problem(data):
    policy = data.draw(policies())
    context = data.draw(contexts(policy.problem))
    assert policy._decide_at_once(context, "id", None, None) is not NotImplemented  # it is the kernel that is tested
    encoded = policy._runtime.encode(context)
    np.testing.assert_array_equal(encoded.view(np.uint32), policy.problem.encode(context).view(np.uint32))
    for given_context in (context, encoded):
        eligible, floor = data.draw(eligibles(policy.problem)), data.draw(floors(policy.problem))
        assert_agree(policy, given_context, data.draw(names), eligible, floor)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_draws_are_the_oracles_to_the_last_bit(ids):
    policy = make_policy()
    np.testing.assert_array_equal(policy._runtime.uniforms(ids), policy.with_runtime("numpy")._runtime.uniforms(ids))


def test_10000_decisions_are_the_oracles():
    policy, rng = make_policy(), np.random.default_rng(0)
    encoded = rng.random((10_000, policy.problem.width), dtype=np.float32)
    ids = [f"decision-{i}" for i in range(len(encoded))]
    (chosen, propensities), (same, expected) = (
        policy.with_runtime(name).decide_many(encoded, ids) for name in ("native", "numpy")
    )
    # The chance that one of 10,000 draws lies within 1e-6 of one of four edges is 8 %; with these ids none does.
    np.testing.assert_array_equal(chosen, same)
    np.testing.assert_allclose(propensities, expected, atol=1e-6)


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 30])
@pytest.mark.parametrize("form", ["rows", "array", "columns"])
@pytest.mark.parametrize("restricted", [False, True])
def test_a_batch_decides_as_one_by_one(rows, form, restricted):
    policy, rng = make_policy(), np.random.default_rng(rows)
    listed = [GOOD | {"speed": x, "plan": "paid"} for x in rng.uniform(-12, 12, rows).tolist()]
    ids = [f"é{i}" for i in range(rows)]
    mask = rng.random((rows, 5)) < 0.5
    mask[:, 2] = True
    contexts = {
        "rows": listed,
        "array": policy.problem.encode_many(listed),
        "columns": {name: [row[name] for row in listed] for name in GOOD},
    }[form]
    options = {"eligible": mask if restricted else None, "floor": 0.03}
    chosen, propensities = policy.decide_many(contexts, ids, **options)
    p = policy.probabilities_many(contexts, **options)
    for i, row in enumerate(listed):
        eligible = [policy.problem.actions.names[k] for k in np.flatnonzero(mask[i])] if restricted else None
        decision = policy.decide(row, id=ids[i], eligible=eligible, floor=0.03)
        assert (decision.action, decision.propensity) == (policy.problem.actions.names[chosen[i]], propensities[i])
        assert decision.propensity == p[i, chosen[i]]


@pytest.mark.parametrize("runtime", ["native", "numpy"])
@pytest.mark.parametrize("eligible", [None, ["action 2", "action 0"]])
def test_a_row_decides_as_its_context(runtime, eligible):
    policy = make_policy().with_runtime(runtime)
    row = tuple(GOOD.get(feature.name) for feature in policy.problem.context)
    for i in range(20):
        decision = policy.decide(GOOD, id=f"é{i}", eligible=eligible)
        assert policy.decide_row(row, id=f"é{i}", eligible=eligible) == decision
    actions, propensities = policy.decide_rows([row], ["é19"])
    alone = policy.decide(GOOD, id="é19")
    assert (policy.problem.actions.decode(actions), propensities.tolist()) == ([alone.action], [alone.propensity])
    assert policy.decide_row(row).id != policy.decide_row(row).id


def test_one_mask_serves_all_rows():
    policy = make_policy()
    mask = np.array([True, False, True, False, False])
    p = policy.probabilities_many([GOOD] * 20, eligible=mask)
    assert (p[:, ~mask] == 0).all()
    np.testing.assert_array_equal(p[0], policy.probabilities(GOOD, eligible=["action 0", "action 2"]))


@pytest.mark.parametrize("hidden", [(), (1,), (3000,), (5000, 3)])
def test_networks_of_any_size(hidden):
    """The largest does not fit the memory that a decision has on the stack."""
    assert_agree(make_policy(hidden=hidden), GOOD, "x", ["action 1", "action 4"], 0.1)


@pytest.mark.parametrize("actions", range(2, 40))
def test_no_eligible_action_is_rarer_than_the_floor(actions):
    policy = make_policy(make_problem(actions=actions), scale=np.float32(9))
    for floor in (1 / actions, 0.9 / actions):
        assert policy.probabilities(GOOD, floor=floor).min() >= np.float32(floor)


def test_many_actions():
    policy = make_policy(make_problem(actions=10_000), hidden=(8,))
    assert_agree(policy, GOOD, "x")
    assert_agree(policy, GOOD, "x", list(policy.problem.actions.names[::3]), 1e-5)


def test_new_ids_are_distinct_and_look_like_uuid4():
    policy = make_policy()
    ids = {policy.decide(GOOD).id for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(i) == 32 and i[12] == "4" and i[16] in "89ab" for i in ids)
    assert policy.decide(GOOD | {"speed": np.float64(1)}).id not in ids


@given(st.data())
def test_values_in_order_are_encoded_as_the_contexts_that_they_are_of(data):
    policy = data.draw(policies())
    problem = policy.problem
    listed = data.draw(st.lists(contexts(problem), max_size=4))
    rows = [tuple(context.get(feature.name) for feature in problem.context) for context in listed]
    expected = np.array([problem.encode(context) for context in listed], np.float32).reshape(len(rows), problem.width)
    for each in (policy, policy.with_runtime("numpy")):
        np.testing.assert_array_equal(each.encode_rows(rows).view(np.uint32), expected.view(np.uint32))


PLAIN = make_problem([ps.Numeric("speed", low=0, high=9), ps.Boolean("hd", missing="flag")], 2)


@pytest.mark.parametrize(
    "row", [(), (1.0,), (1.0, True, 2.0), (None, True), (float("nan"), True), ("1", True), (1.0, 2)]
)
def test_values_that_do_not_fit_are_refused_as_the_oracle_does(row):
    policy = make_policy(PLAIN)
    told = outcome(lambda: policy.encode_rows([(1.0, True), row]))
    assert isinstance(told, tuple)
    assert told == outcome(lambda: policy.with_runtime("numpy").encode_rows([(1.0, True), row]))


def test_values_of_other_types_are_encoded_as_the_oracle_does():
    policy = make_policy(PLAIN)
    rows = [(np.float64(1.5), True), (2, None)]
    assert (policy.encode_rows(rows) == policy.with_runtime("numpy").encode_rows(rows)).all()


cells = st.none() | st.booleans() | finite | st.text(max_size=3)


@given(st.lists(st.tuples(cells, cells, cells), max_size=6))
def test_digests_are_equal_where_the_values_are(rows):
    found = _native.digests(rows)
    for row, digest in zip(rows, found, strict=True):
        same = [other for other, of_other in zip(rows, found, strict=True) if of_other == digest]
        assert all(list(map(plain, other)) == list(map(plain, row)) for other in same)
    again = [tuple(value + 0.0 if type(value) is float else value for value in row) for row in rows]
    assert found == _native.digests(again)


def plain(value):
    """A value that equals no other: True is 1.0 for Python."""
    return type(value), value


def test_digests_of_zeros_and_of_what_has_none():
    assert _native.digests([(0.0, 1.0)]) == _native.digests([(-0.0, 1.0)])
    assert len(set(_native.digests([(0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.0,), ()]))) == 5
    for other in ([[1.0]], [({},)], ((1.0,),)):
        with pytest.raises(TypeError):
            _native.digests(other)
