"""Actions that are numbers: students by KL and by Wasserstein distance, and the time of a decision.

    python benchmarks/continuous.py                    # some minutes on two cores
    python benchmarks/continuous.py --only decide

Labels are those of Continuous-Linear-TS after 2,000 uniform decisions of the lab's simulators. Students are measured on
contexts that they were not trained on. W₁ is in percent of the interval; the cost is the reward per decision that
imitation gives up by the teacher's mean rewards. A decision is timed beside one among 128 names, with the same network.
"""

import argparse
import time
import timeit
from itertools import pairwise

import numpy as np

import potstill as ps
from potstill.distill import fidelity, imitate
from potstill.distill.imitate import by_distance
from potstill.keys import Key
from potstill.lab.problems import Bidding, Pricing, Simulation
from potstill.policy import Layer, Policy
from potstill.spaces import learning
from potstill.teachers import ContinuousLinearTS

NETWORKS = ((4,), (16,), (100, 100))
CONTEXTS, MEASURED = 8_192, 2_000


def labelled(environment, key):
    """Contexts and labels of a teacher that has learnt from uniform decisions, and its mean rewards."""
    uniform = Policy.uniform(environment.problem)
    world = Simulation(environment, 2_000, key)
    batch = world.batch(2_000, lambda x: uniform.decide_many(x, [str(i) for i in range(len(x))]))
    teacher = ContinuousLinearTS()
    state = teacher.update(teacher.init(environment.problem), batch.observations, key)
    contexts = environment.encode(environment.contexts(CONTEXTS + MEASURED, key.child("more").generator()))
    labels = teacher.propensities(state, contexts, key.child("labels"))
    return contexts, labels, teacher.mean_rewards(state, contexts[CONTEXTS:])


def students(environment, key):
    """Print a row for each network and distance."""
    contexts, labels, rewards = labelled(environment, key)
    space = environment.problem.actions
    shape = learning(space)
    for hidden in NETWORKS:
        for distance in ("kl", "wasserstein"):
            started = time.perf_counter()

            def train(student, start):
                return imitate(contexts[:CONTEXTS], labels[:CONTEXTS], student, key, start, learning=shape)

            found = by_distance(train, ps.Student(hidden=hidden, distance=distance), None)
            seconds = time.perf_counter() - started
            policy = Policy.build(environment.problem, found.layers, version=1)
            measured = fidelity(
                shape, labels[CONTEXTS:], policy.distribution(contexts[CONTEXTS:]), None, rewards=rewards
            )
            share = 100 * measured.w1_mean / (space.high - space.low)
            print(
                f"{environment.problem.name:8} {hidden!s:12} {distance:12} {share:7.2f} % {measured.kl_mean:8.4f} "
                f"{measured.cost:9.4f} {measured.w1_price:9.4f} {found.steps:6} {seconds:6.1f}"
            )


def decide():
    """Print microseconds of a decision from a dict, of a number and of one among as many names."""
    rng = np.random.default_rng(0)
    features = [ps.Numeric(f"x{i}", low=0, high=1) for i in range(38)]
    context = {feature.name: float(rng.random()) for feature in features}
    for bins in (32, 128, 512):
        times = []
        for space in (ps.Continuous("price", 1, 9, bins=bins), ps.Discrete([str(i) for i in range(bins)])):
            problem = ps.Problem(name="time", context=features, actions=space)
            sizes = [38, 100, 100, bins]
            layers = [
                Layer((rng.standard_normal((i, o)) / np.sqrt(i)).astype(np.float32), np.zeros(o, np.float32))
                for i, o in pairwise(sizes)
            ]
            policy = Policy.build(problem, layers, version=1)
            runs = timeit.repeat(lambda policy=policy: policy.decide(context, id="x"), number=10_000, repeat=9)
            times.append(min(runs) * 100)
        print(f"{bins:4} bins: a number {times[0]:.2f} µs, a name {times[1]:.2f} µs, ratio {times[0] / times[1]:.2f}")


def main():
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["students", "decide"])
    only = parser.parse_args().only
    if only != "decide":
        print("problem  network      distance          W₁       KL      cost     L·W₁  steps seconds")
        for environment in (Pricing(), Bidding()):
            students(environment, Key(0))
    if only != "students":
        decide()


if __name__ == "__main__":
    main()
