"""Latency of Thompson sampling and of its distilled policy in one language: NumPy against NumPy, and C against C.

What one would serve is a policy in C and a posterior in NumPy. Their ratio holds the difference of the languages; these
ratios do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from potstill.keys import Key
from potstill.lab.measure.c_deciders import CDecider, NoCompiler, c_networks, c_policy, c_posterior, library
from potstill.lab.measure.deciders import by_policy_in_numpy, decider, layers_of
from potstill.lab.measure.latency import WARM_UP, Latency, figures, timed, trained
from potstill.lab.problems import Float32
from potstill.lab.runs import Agent, Fixed, Undistilled
from potstill.teachers import LinearTS, NeuralLinearTS

Language = Literal["numpy", "c"]
#: Algorithms that are written in both languages; their distilled policies are timed beside them.
BOTH = ("linear-ts", "neural-linear-ts", "bootstrap-nn-ts")


class SameLanguage(Latency, frozen=True, kw_only=True):
    """Latency of one algorithm on one problem, written in one language.

    Attributes:
        language: ``numpy`` or ``c``.
    """

    language: Language


def languages() -> list[Language]:
    """Languages that can be measured here."""
    try:
        library()
    except NoCompiler:
        return ["numpy"]
    return ["numpy", "c"]


def measure(
    problems: Sequence[str],
    algorithms: Sequence[str],
    calls: int,
    written_in: Sequence[Language],
    *,
    preset: str = "paper",
    seconds: float = 20.0,
    on_progress: Callable[[str], None] = lambda _: None,
) -> list[SameLanguage]:
    """Time Thompson sampling and its distilled policy in each language.

    Args:
        problems: Names of scenarios.
        algorithms: Names of algorithms; those in `BOTH` are measured, if their distilled policies are listed too.
        calls: Number of timed calls of each.
        written_in: Languages to measure.
        preset: Preset of hyperparameters.
        seconds: Time limit for each algorithm in NumPy, in seconds.
        on_progress: Called with the name of the next measurement.
    """
    measured = []
    for problem in problems:
        for name in (name for both in BOTH for name in (both, f"{both}-il") if {both, f"{both}-il"} <= {*algorithms}):
            agent, contexts = trained(problem, name, preset)
            for language in written_in:
                on_progress(f"{problem}, {name} in {language}")
                taken = _timed(agent, contexts, calls, seconds, language)
                found = figures(taken)
                measured.append(SameLanguage(problem=problem, algorithm=name, language=language, **found))
    return measured


def _timed(agent: Agent, contexts: Float32, calls: int, seconds: float, language: Language) -> list[int]:
    if language == "c":
        in_c = c_decider(agent)
        in_c.run(contexts, min(WARM_UP, calls))
        return [int(nanoseconds) for nanoseconds in in_c.run(contexts, calls)[1]]
    rng = Key(0).child("decide").generator()
    numpy = by_policy_in_numpy(agent.policy, rng) if isinstance(agent, Fixed) else decider(agent, seed=0)
    return timed(numpy, contexts, calls, seconds)


def c_decider(agent: Agent, seed: int = 0) -> CDecider:
    """The decider of an agent in C, with the random numbers of `decider`."""
    if isinstance(agent, Fixed):
        return c_policy(agent.policy)
    assert isinstance(agent, Undistilled)
    rng, teacher, state = Key(seed).child("decide").generator(), agent.teacher, agent.state
    if type(teacher) is LinearTS:
        return c_posterior(state.posterior, rng)
    if type(teacher) is NeuralLinearTS:
        return c_posterior(state.posterior, rng, layers_of(state.networks, 0)[:-1])
    return c_networks(state.networks, rng)
