"""The demo's report: one HTML page with everything in it, readable without a network."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

import altair as alt
import vl_convert

from potstill._version import __version__
from potstill.lab import demo_charts as charts
from potstill.lab.demo import Batch, usage
from potstill.lab.demo_results import Results, microseconds


class _Section(NamedTuple):
    """A finding: what is seen, said first, and the charts that show it, side by side."""

    title: str
    caption: str
    figures: dict[str, charts.Chart]


def write(path: Path, results: Results, batches: Sequence[Batch], policy: Path) -> None:
    """Write the report of a run, whose last policy was saved at `policy`."""
    sections = _sections(results, batches)
    specs = {name: chart.to_dict() for section in sections for name, chart in section.figures.items()}
    settings = results.settings
    page = _PAGE.substitute(
        subtitle=f"{settings.decisions:,} decisions in {len(batches)} batches, seed {settings.seed}",
        figures="\n".join(_headline(*figure) for figure in _headlines(results)),
        sections="\n".join(_section(section) for section in sections),
        usage=html.escape(usage(policy)),
        version=__version__,
        library=_javascript(),
        # A script ends at the first "</", wherever it stands.
        specs=json.dumps(specs).replace("</", "<\\/"),
    )
    path.write_text(page, encoding="utf-8")


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


def _sections(results: Results, batches: Sequence[Batch]) -> list[_Section]:
    return [
        _Section(
            "Reward and regret",
            "All four meet the same requests with the same luck. Left, mean reward per upload: 0 if it fails, and up "
            "to 1 the better the quality that arrives. Right, expected reward given up against the best action for "
            "each request, added up. The distilled policy should lie on the dashed line, which samples from its "
            "posterior for every decision.",
            {"reward": charts.running_reward(batches), "regret": charts.cumulative_regret(batches)},
        ),
        _Section(
            "Which quality at which bandwidth",
            "The probability of each action, averaged over requests of similar upload bandwidth: before anything was "
            "learnt, along the way, at the end, and what the best possible choice would be. The best choice depends on "
            "duration and on the filmed bitrate too, so bands mix. Where hardly any upload arrives, on the far left, "
            "the choice matters little and is learnt last.",
            {"actions": charts.actions_by_bandwidth(batches, results.settings.seed)},
        ),
        _Section(
            "Propensities, as logged and as it happened",
            "Every pair of a decision and an action, grouped by the probability that the policy gave to the action, "
            "against how often it was then taken; right, the difference of the two. Bars are 95 % intervals, so about "
            "one in twenty misses the dashed line by chance. That the log says what happened is what off-policy "
            "evaluation stands on.",
            {"calibration": charts.calibration(batches), "error": charts.calibration_error(batches)},
        ),
        _Section(
            "Fidelity to the teacher",
            "Left, the divergence from the teacher's exact probabilities to the policy's, on contexts held out from "
            "training. Right, what that can cost at most: the range of rewards times √(½ KL), the price of imitation "
            "in the paper's regret bound. It is a worst case; the regret above shows what it did cost.",
            {"fidelity": charts.fidelity(results), "price": charts.regret_price(results)},
        ),
        _Section(
            "Time per decision",
            "Median time of one decision from a mapping of raw values, in Python, on the machine that ran this demo: "
            "policy.decide against encoding the context and sampling from the posterior in NumPy.",
            {"time": charts.decision_time(results)},
        ),
    ]


def _headline(figure: str, text: str) -> str:
    return f"<div><strong>{html.escape(figure)}</strong><span>{html.escape(text)}</span></div>"


def _section(section: _Section) -> str:
    figures = "".join(f'<div class="chart" id="{name}"></div>' for name in section.figures)
    title, caption = html.escape(section.title), html.escape(section.caption)
    return f'<section><h2>{title}</h2><p>{caption}</p><div class="charts">{figures}</div></section>'


def _javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, in the version that Altair writes for."""
    major, minor = alt.SCHEMA_VERSION.lstrip("v").split(".")[:2]
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed", vl_version=f"{major}.{minor}")
    return script.replace("</script", "<\\/script")


_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Potstill demo: video upload</title>
<style>
:root { color-scheme: light dark; --ink: #1f2328; --soft: #5f6670; --line: #e3e5e8; --page: #fff; --copper: #b25722; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6e9; --soft: #9aa1ab; --line: #30353c; --page: #15181c; --copper: #e08a52; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 48px 24px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 0 0 6px; }
p { margin: 0; color: var(--soft); max-width: 76ch; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 28px; margin: 36px 0 8px; }
.figures strong { display: block; font-size: 32px; line-height: 1.2; color: var(--copper); font-weight: 600; }
.figures span { color: var(--soft); font-size: 14px; line-height: 1.45; display: block; margin-top: 4px; }
section { border-top: 1px solid var(--line); padding-top: 28px; margin-top: 36px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 24px; margin-top: 18px; }
.chart { width: 100%; min-width: 0; overflow-x: auto; }
pre { overflow-x: auto; padding: 14px 16px; border: 1px solid var(--line); border-radius: 6px; font-size: 13px; }
footer { color: var(--soft); font-size: 13px; margin-top: 36px; }
@media (max-width: 520px) { .charts { grid-template-columns: 1fr; } }
</style>
</head>
<body>
<main>
<h1>Thompson sampling, distilled</h1>
<p>A simulated video upload service: for each upload, choose one of seven qualities from 38 columns of video, network
and device facts. $subtitle.</p>
<div class="figures">
$figures
</div>
<noscript><p>The charts below are drawn by a script in this page, and scripts are switched off.</p></noscript>
$sections
<section><h2>Use the policy</h2><p>The file needs no learning library to decide.</p><pre>$usage</pre></section>
<footer>Potstill $version. This page needs no network.</footer>
</main>
<script type="module">$library</script>
<script type="module">
const specs = $specs;
const dark = matchMedia("(prefers-color-scheme: dark)");
function theme() {
  const [ink, soft, line] = dark.matches ? ["#e4e6e9", "#9aa1ab", "#30353c"] : ["#1f2328", "#5f6670", "#e3e5e8"];
  const text = {labelColor: soft, titleColor: soft, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal"};
  return {
    background: "transparent", font: "system-ui, sans-serif", view: {stroke: null},
    axis: {...text, gridColor: line, domainColor: line, tickColor: line},
    legend: text, header: {...text, labelColor: ink}, title: {color: ink},
  };
}
function draw() {
  for (const [id, spec] of Object.entries(specs))
    vegaEmbed("#" + id, spec, {actions: false, renderer: "svg", config: theme()});
}
draw();
dark.addEventListener("change", draw);
</script>
</body>
</html>
""")
