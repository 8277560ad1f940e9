"""The demo's report: what one run showed, as a page."""

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
        "A simulated video upload service: for each upload, choose one of seven qualities from 38 columns of video, "
        f"network and device facts. {settings.decisions:,} decisions in {len(batches)} batches, seed {settings.seed}.",
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
            "of the best possible reward, in the last quarter of the run. Undistilled Thompson sampling gets "
            f"{share['thompson']:.0%}, uniform choice {share['uniform']:.0%}.",
        ),
        (f"{results.regret_ratio:.2f}×", "the regret of undistilled Thompson sampling, over the whole run."),
        (
            f"{results.rows[-1].fidelity.kl_mean:.4f} nats",
            "from the last policy to its teacher, on contexts that it was not trained on.",
        ),
        (
            microseconds(results.decide_us),
            "per decision, from raw values to action. Sampling from the posterior takes "
            f"{microseconds(results.sample_us)}.",
        ),
    ]


def _sections(results: Results, batches: Sequence[Batch]) -> list[Section]:
    return [
        Section(
            "Reward and regret",
            "All four meet the same requests with the same luck. Left, mean reward per upload: 0 if it fails, and up "
            "to 1 the better the quality that arrives. Right, expected reward given up against the best action for "
            "each request, added up. The distilled policy should lie on the dashed line, which samples from its "
            "posterior for every decision.",
            {"reward": charts.running_reward(batches), "regret": charts.cumulative_regret(batches)},
        ),
        Section(
            "Which quality at which bandwidth",
            "The probability of each action, averaged over requests of similar upload bandwidth: before anything was "
            "learnt, along the way, at the end, and what the best possible choice would be. The best choice depends on "
            "duration and on the filmed bitrate too, so bands mix. Where hardly any upload arrives, on the far left, "
            "the choice matters little and is learnt last.",
            {"actions": charts.actions_by_bandwidth(batches, results.settings.seed)},
        ),
        Section(
            "Propensities, as logged and as it happened",
            "Every pair of a decision and an action, grouped by the probability that the policy gave to the action, "
            "against how often it was then taken; right, the difference of the two. Bars are 95 % intervals, so about "
            "one in twenty misses the dashed line by chance. That the log says what happened is what off-policy "
            "evaluation stands on.",
            {"calibration": charts.calibration(batches), "error": charts.calibration_error(batches)},
        ),
        Section(
            "Fidelity to the teacher",
            "Left, the divergence from the teacher's exact probabilities to the policy's, on contexts held out from "
            "training. Right, what that can cost at most: the range of rewards times √(½ KL), the price of imitation "
            "in the paper's regret bound. It is a worst case; the regret above shows what it did cost.",
            {"fidelity": charts.fidelity(results), "price": charts.regret_price(results)},
        ),
        Section(
            "Time per decision",
            "Median time of one decision from a mapping of raw values, in Python, on the machine that ran this demo: "
            "policy.decide against encoding the context and sampling from the posterior in NumPy.",
            {"time": charts.decision_time(results)},
        ),
    ]


def _use(policy: Path) -> Section:
    return Section("Use the policy", "The file needs no learning library to decide.", code=usage(policy))
