"""The extension itself: its own checks, threads, references and memory."""

import gc
import math
import sys
import threading
import tracemalloc
import weakref

import numpy as np
import pytest
from native_examples import GOOD, kernel_parts, make_kernel, make_policy, make_problem, needs_native, outcome

import potstill as ps

pytestmark = needs_native


class Text(str):
    pass


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("features", []), ("features", (3,)), ("features", ((),)), ("features", (("x", "numeric"),)), ("features", ()),
        ("features", (("x", "number", "flag", 0, 0, 1, 0, 1, False, ()),)),
        ("features", (("x", "numeric", "guess", 0, 0, 1, 0, 1, False, ()),)),
        ("features", (("x", "numeric", "flag", 0, 0, 1, 0, math.nan, False, ()),)),
        ("features", (("\ud800", "numeric", "flag", 0, 0, 1, 0, 1, False, ()),)),
        ("features", ((Text("x"), "numeric", "flag", 0, 0, 1, 0, 1, False, ()),)),
        ("features", (("x", "numeric", "flag", 0, 0, 1, 0, 1, False, ()),) * 2),
        ("features", (("x", "categorical", "refuse", 0, 0, 0, 0, 1, False, ("a", 3)),)),
        ("features", (("x", "categorical", "refuse", 0, 0, 0, 0, 1, False, ("a", "\udfff")),)),
        ("layers", ()), ("layers", (3,)), ("layers", ((1, 2),)), ("layers", []),
        ("layers", ((np.zeros((18, 5), np.float32), np.zeros(5, np.float32)),)),
        ("layers", ((np.zeros((17, 5), np.float32), np.zeros(4, np.float32)),)),
        ("layers", ((np.zeros((17, 0), np.float32), np.zeros(0, np.float32)),)),
        ("layers", ((np.zeros((17, 5), np.float64), np.zeros(5, np.float32)),)),
        ("layers", ((np.zeros((17, 5), np.float32), np.zeros((5, 1), np.float32)),)),
        ("layers", ((np.zeros((5, 17), np.float32).T, np.zeros(5, np.float32)),)),
        ("actions", ("a", "b")), ("actions", ("a",) * 5), ("actions", tuple(range(5))), ("actions", ["a"]),
        ("activation", "sigmoid"), ("activation", None), ("salt", b"short"), ("salt", "0" * 16), ("floor", "low"),
    ],
)  # fmt: skip
def test_a_kernel_of_wrong_parts_is_refused(field, value):
    with pytest.raises((TypeError, ValueError, BufferError)):
        make_kernel(**{field: value})


def test_arrays_that_do_not_fit_are_refused():
    kernel, width, f32 = make_kernel(), make_problem().width, np.float32
    encoded, draws, p = np.zeros((3, width), f32), np.zeros(3), np.zeros((3, 5), f32)
    actions, propensities = np.zeros(3, np.int64), np.zeros(3, f32)
    mask, frozen = np.ones((3, 5), bool), np.zeros((3, 5), f32)
    frozen.flags.writeable = False
    assert kernel.probabilities(encoded, mask, 0.1, p)
    assert kernel.decide_many(encoded, draws, mask, 0.1, actions, propensities)
    for wrong in (
        (encoded[:, 1:].copy(), None, 0.0, p), (encoded[:, ::2], None, 0.0, p), (encoded[0], None, 0.0, p),
        (encoded.astype(float), None, 0.0, p), (encoded, mask[:2], 0.0, p), (encoded, mask[0], 0.0, p),
        (encoded, mask.astype(int), 0.0, p), (encoded, None, 0.0, p[:2]), (encoded, None, 0.0, frozen),
        (encoded, None, 0.0, p.astype(float)), (encoded, None, "0", p), (encoded, None, 0.0), (None, None, 0.0, p),
        (3, None, 0.0, p), ("abc", None, 0.0, p), (b"abc", None, 0.0, p),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, BufferError)):
            kernel.probabilities(*wrong)
    for wrong in (
        (encoded, draws[:2], None, 0.0, actions, propensities), (encoded, p, None, 0.0, actions, propensities),
        (encoded, draws, None, 0.0, actions[:2], propensities), (encoded, draws, None, 0.0, actions, propensities[:2]),
        (encoded, draws, None, 0.0, actions.astype(np.int32), propensities), (encoded, draws, None, 0.0, actions),
        (encoded, draws.astype(f32), None, 0.0, actions, propensities),
        (encoded, draws, None, 0.0, draws, propensities),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, BufferError)):
            kernel.decide_many(*wrong)
    for method, wrong in [
        (kernel.encode_many, ([GOOD], encoded)), (kernel.encode_many, ((GOOD,), encoded[:1])),
        (kernel.uniforms, (["a"], draws)), (kernel.uniforms, ("a", draws[:1])), (kernel.uniforms, (["a"], encoded)),
        (kernel.decide, (GOOD, "x", None)), (kernel.decide, ()),
    ]:  # fmt: skip
        with pytest.raises((TypeError, ValueError, BufferError)):
            method(*wrong)
    assert not kernel.probabilities(encoded, np.zeros((3, 5), bool), 0.0, p)
    assert not kernel.probabilities(encoded, None, 0.3, p)
    assert not kernel.probabilities(np.full_like(encoded, np.nan), None, 0.0, p)
    assert not kernel.decide_many(encoded, draws, None, -0.1, actions, propensities)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes cannot give out buffers before Python 3.12")
def test_a_list_that_grows_while_its_array_is_opened():
    kernel = make_kernel()

    class Out:
        def __init__(self, array, grows, by):
            self.array, self.grows, self.by = array, grows, by

        def __buffer__(self, flags):
            self.grows.extend(self.by)
            return memoryview(self.array)

    rows, ids = [GOOD], ["x"]
    assert not kernel.encode_many(rows, Out(np.zeros((1, make_problem().width), np.float32), rows, [GOOD] * 10_000))
    assert not kernel.uniforms(ids, Out(np.zeros(1), ids, ["x"] * 10_000))


def test_a_draw_outside_its_range_still_chooses_an_action():
    kernel, encoded = make_kernel(), np.zeros((5, make_problem().width), np.float32)
    actions, propensities = np.full(5, -1), np.zeros(5, np.float32)
    draws = np.array([-1.0, 1.0, 2.0, math.nan, math.inf])
    assert kernel.decide_many(encoded, draws, None, 0.0, actions, propensities)
    assert ((actions >= 0) & (actions < 5) & (propensities > 0)).all()


def in_threads(count, work):
    errors = []

    def run():
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_threads_share_a_policy():
    policy = make_policy()
    encoded = policy.problem.encode_many([GOOD] * 200)
    ids = [f"id-{i}" for i in range(200)]
    expected = [policy.decide(GOOD, id=i) for i in ids]
    chosen, propensities = policy.decide_many(encoded, ids)

    def work():
        for _ in range(5):
            assert [policy.decide(GOOD, id=i) for i in ids] == expected
            again = policy.decide_many(encoded, ids)
            np.testing.assert_array_equal(again[0], chosen)
            np.testing.assert_array_equal(again[1], propensities)

    in_threads(4, work)


@pytest.mark.parametrize("method", ["decide_many", "probabilities"])
def test_other_threads_run_during_a_batch(method):
    """With a switch interval of minutes, this thread can only go on once the batch is over, or while it lets it."""
    policy = make_policy(hidden=(400, 400))
    kernel, rows = policy._runtime._kernel, 20_000
    encoded = np.random.default_rng(0).random((rows, policy.problem.width), dtype=np.float32)
    arguments = {
        "decide_many": (encoded, np.zeros(rows), None, 0.0, np.zeros(rows, np.int64), np.zeros(rows, np.float32)),
        "probabilities": (encoded, None, 0.0, np.zeros((rows, 5), np.float32)),
    }[method]
    started, done = threading.Event(), threading.Event()

    def work():
        started.set()
        getattr(kernel, method)(*arguments)
        done.set()

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=work)
    try:
        sys.setswitchinterval(600)
        thread.start()
        started.wait()
        assert not done.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert done.is_set()


def exercise(policy, context, decision_id, eligible, encoded):
    """Every way through the extension, refusals included."""
    policy.decide(context, id=decision_id)
    policy.decide(context, id=decision_id, eligible=eligible, floor=0.01)
    policy.decide(encoded, id=decision_id, eligible=tuple(eligible))
    policy.decide(context)
    policy.decide(context | {"speed": np.float64(1)}, id=decision_id)
    policy.decide_many([context, context], [decision_id, decision_id])
    policy.probabilities(context, eligible=eligible)
    for wrong in ({"speed": 1}, context | {"speed": 10**400}, context | {"colour": 3}, context | {"place": "\ud800"}):
        outcome(lambda wrong=wrong: policy.decide(wrong, id=decision_id))
    outcome(lambda: policy.decide(context, id="\ud800"))
    outcome(lambda: policy.decide(context, id=decision_id, eligible=["nothing like this"]))
    outcome(lambda: policy.decide_many([context, None], [decision_id, ""]))


def test_no_reference_is_lost_or_kept():
    policy = make_policy()
    context = GOOD | {"speed": float("1.25"), "place": "".join(["ho", "me"])}
    decision_id, eligible = "".join(["request", "-1"]), ["action 1", "action 3"]
    encoded = policy.problem.encode(context)
    watched = [
        context, *context, *context.values(), decision_id, eligible, *eligible, encoded, ps.Decision,
        policy.version, *policy.problem.actions.names, np.ndarray, policy._runtime._kernel, None, NotImplemented,
    ]  # fmt: skip
    exercise(policy, context, decision_id, eligible, encoded)
    gc.collect()
    before = [sys.getrefcount(each) for each in watched]
    for _ in range(300):
        exercise(policy, context, decision_id, eligible, encoded)
    gc.collect()
    after = [sys.getrefcount(each) for each in watched]
    # A leak in any path shows as a multiple of 300; the interpreter itself moves the counts of common objects a little.
    assert [b - a for a, b in zip(before, after, strict=True) if abs(b - a) >= 100] == []


def test_no_memory_is_lost():
    policy = make_policy()
    encoded = policy.problem.encode(GOOD)

    def grown(work, times):
        work()
        gc.collect()
        tracemalloc.start()
        try:
            work()
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(times):
                work()
            gc.collect()
            return tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()

    assert grown(lambda: exercise(policy, GOOD, "x", ["action 1"], encoded), 200) < 200 * 8
    assert grown(lambda: make_policy(hidden=(3000,)).decide(GOOD, id="x"), 20) < 20_000
    assert grown(lambda: make_kernel(), 50) < 50 * 100
    assert grown(lambda: outcome(lambda: make_kernel(layers=((1, 2),))), 50) < 50 * 100
    wrong = (*kernel_parts()["features"][:4], ("x", "categorical", "refuse", 0, 0, 0, 0, 1, False, ("a", 3)))
    assert grown(lambda: outcome(lambda: make_kernel(features=wrong)), 50) < 50 * 100


def test_a_kernel_in_a_cycle_is_collected():
    class Decided(tuple):
        pass

    kernel = make_kernel(decision=Decided)
    Decided.kernel = kernel
    gone = weakref.ref(Decided)
    del Decided, kernel
    gc.collect()
    assert gone() is None
