"""What the report says about its figures and tables."""

from __future__ import annotations

from textwrap import dedent


def _flowed(text: str) -> str:
    """Paragraphs without the line breaks that they have here."""
    return "\n\n".join(" ".join(part.split()) for part in dedent(text).split("\n\n"))


COMPARISON = _flowed("""
    Trials of equal number meet the same requests with the same luck, so algorithms are compared in pairs. The ratio is
    that of mean final regret, IL over TS (of mean reward where a log is replayed). Its 95 % interval is Fieller's, with
    t quantiles: all ratios ρ for which the mean of IL − ρ·TS over trials is not significantly away from 0. The verdict
    goes by two standard errors of the paired difference. In the figure, blue is within them, red is outside, and grey
    has too few trials to tell.
""")

_CURVES = """
    Mean over trials with two standard errors, the first, uniform batch included. Solid lines are distilled policies and
    baselines; dashed ones act on posterior samples, or are other libraries'.
"""

REGRET = _flowed(f"""
    Regret is the expected reward given up against the best action for each request, added up. {_CURVES} Where
    UniformRandom is not to be seen, it has left the frame at the top.
""")

REWARD = _flowed(f"""
    Running mean of the reward: a log does not say what the best action would have earned. {_CURVES}
""")

PEERS = "\n\n" + _flowed("""
    In the table, Potstill's own stand against the best of the other libraries, by its mean: the ratio less 1, paired by
    trial, with its 95 % interval, and better or worse where that leaves out 0.
""")

LATENCY = _flowed("""
    One decision at a time from an encoded context, drawing of randomness included, on {processor} with one thread,
    Python {python}, preset paper (Adaptive-TS: potstill), after {learnt} observations. The paper's numbers (its table
    of decision-making latency, Intel Xeon E5-2680 v4, 32-bit floats) are from another machine and another framework:
    compare ratios.

    A distilled policy is policy.decide, a C kernel that returns the decision with its propensity. Thompson sampling is
    timed as one would serve it from NumPy, with everything computed beforehand that does not depend on the context: one
    matrix product for the scale of every action's Student-t reward, as much arithmetic as the paper's triangular
    solves; one network at random for the ensemble; for GP-TS and Adaptive-TS the joint posterior, as the library
    computes it. So part of the ratio is C against NumPy: a network of about the policy's size in NumPy is the row of
    Neural-Greedy. TS / IL is the ratio of the medians, since means also hold what other programs on the machine cost;
    in the paper, of means. Slow algorithms were stopped after 20 s, which the number of calls shows.
""")

COMPLEXITY = _flowed("""
    The paper's table of complexity, measured: one dimension grows while the others are held. C is d·h + h², a forward
    pass up to the last of two hidden layers of h units. Fitted is the exponent of what a size adds to the smallest one;
    expected is the same fit to the paper's formula. At small sizes the overhead of the calls (some microseconds in
    NumPy, half of one in the C kernel) hides the arithmetic, and beyond 1 MB it is the speed of memory that is
    measured: the exponent of time is fitted in between, on sizes that take 15 % longer than the smallest and fit a
    core's cache. Memory is what must be where decisions are taken, as 32-bit floats; for TS-IL the policy file.
""")

IMITATION = _flowed("""
    The divergence KL(teacher ‖ policy) on held-out contexts after each update, the mean over trials. By the paper's
    decomposition it can cost at most L·√(KL/2) per decision, L the range of mean rewards seen; the price adds that up
    over a trial, each batch at the price of the policy that decided it. Seen is what the policy gave up against its
    Thompson sampling, paired by trial. It also holds what learning from other actions changed, of which the bound does
    not speak. Both are in reward over a whole trial.
""")
