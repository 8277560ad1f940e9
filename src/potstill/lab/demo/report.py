"""The demo's report: the results of one run as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from potstill.lab.demo import charts
from potstill.lab.demo.demo import Batch, usage
from potstill.lab.demo.results import Results, microseconds
from potstill.pages import Page, Section


def write(path: Path, results: Results, batches: Sequence[Batch], policy: Path) -> None:
    """Write the report of a run, whose last policy was saved at `policy`."""
    settings = results.settings
    page = Page(
        "Thompson sampling, distilled",
        "A simulated video upload service. For each upload, the policy chooses one of seven video qualities from 38 "
        "context columns that describe the video, the network and the device. "
        f"{settings.decisions:,} decisions in {len(batches)} batches, seed {settings.seed}.",
        _headlines(results),
        [*_sections(results, batches), _use(policy)],
        name="Potstill demo: video upload",
    )
    page.write(path)


def _headlines(results: Results) -> list[tuple[str, str]]:
    share = results.late_share
    return [
        (
            f"{share['potstill']:.0%}",
            "of the best possible reward in the last quarter of the run. Undistilled Thompson sampling reaches "
            f"{share['thompson']:.0%}, uniform choice {share['uniform']:.0%}.",
        ),
        (f"{results.regret_ratio:.2f}×", "the regret of undistilled Thompson sampling over the whole run."),
        (
            f"{results.rows[-1].fidelity.kl_mean:.4f} nats",
            "KL divergence between the last policy and its teacher, on held-out contexts.",
        ),
        (
            microseconds(results.decide_us),
            "per decision, from raw values to action. Sampling from the posterior instead takes "
            f"{microseconds(results.sample_us)}.",
        ),
    ]


def _sections(results: Results, batches: Sequence[Batch]) -> list[Section]:
    return [
        Section(
            "Reward and regret",
            "All four algorithms get the same requests and the same reward noise. Left: mean reward per upload so far. "
            "A failed upload earns 0; a successful one earns more, up to 1, the better its quality. Right: cumulative "
            "regret, the expected reward lost against the best action for each request. The distilled policy should "
            "follow the dashed line: Thompson sampling that draws from the posterior for every decision.",
            {"reward": charts.running_reward(batches), "regret": charts.cumulative_regret(batches)},
        ),
        Section(
            "Which quality at which bandwidth",
            "Probability of each action, averaged over requests of similar upload bandwidth: before the first update, "
            "during the run, at the end, and for the best possible choice. Colours mix at one bandwidth because the "
            "best action also depends on the duration and bitrate of the video. At the far left almost every upload "
            "fails, so the choice matters little and is learnt last.",
            {"actions": charts.actions_by_bandwidth(batches, results.settings.seed)},
        ),
        Section(
            "Calibration of the logged propensities",
            "Are actions taken as often as their logged probability says? Off-policy evaluation relies on it. Each "
            "point is a group of (decision, action) pairs with similar probability. Left: how often the action was "
            "taken. Right: that frequency minus the probability. Bars are 95 % confidence intervals, so about one in "
            "twenty misses the dashed line by chance.",
            {"calibration": charts.calibration(batches), "error": charts.calibration_error(batches)},
        ),
        Section(
            "Fidelity to the teacher",
            "Left: KL divergence from the teacher's exact probabilities to the policy's, on held-out contexts. Right: "
            "upper bound on the reward that this divergence can cost per decision, the range of rewards times √(½ KL). "
            "It is the price of imitation in the paper's regret bound and a worst case. By the teacher's own mean "
            f"rewards the last policy gives up {results.rows[-1].fidelity.cost or 0.0:.2g} reward per decision; the "
            "regret chart above shows what was lost in fact.",
            {"fidelity": charts.fidelity(results), "price": charts.regret_price(results)},
        ),
        Section(
            "Time per decision",
            "Median time of one decision in Python, from a dict of raw values, on the machine that ran this demo. "
            "Potstill calls policy.decide; Thompson sampling encodes the context and samples from the posterior in "
            "NumPy.",
            {"time": charts.decision_time(results)},
        ),
    ]


def _use(policy: Path) -> Section:
    return Section(
        "Use the policy", "The policy file decides without any learning library installed.", code=usage(policy)
    )
