"""One trial: an algorithm meets a world, batch by batch, after a first batch that is uniform for every algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from potstill.lab.problems.world import World
from potstill.lab.runs.agents import Agent, Fixed, Learned
from potstill.policy import Policy


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of a trial.

    Attributes:
        decisions: in the batch.
        reward: their sum.
        regret: expected reward given up in the batch; None where the truth is not known.
        learned: what the update after the batch did.
    """

    decisions: int
    reward: float
    regret: float | None
    learned: Learned


def play(world: World, agent: Agent, sizes: Sequence[int], seed: int) -> Iterator[Turn]:
    """Play batches of those sizes.

    Args:
        world: that is met; worlds and seeds that are equal give every agent the same first batch.
        agent: that decides from the second batch on.
        sizes: decisions in each batch.
        seed: of the first, uniform batch.
    """
    uniform = Fixed(Policy.uniform(world.problem, seed=seed))
    for number, size in enumerate(sizes):
        batch = world.batch(size, agent.choose if number else uniform.choose)
        yield Turn(
            decisions=size,
            reward=float(batch.observations.rewards.sum()),
            regret=batch.regret,
            # Nothing is decided after the last batch, so nothing has to be learnt from it.
            learned=agent.learn(batch.observations) if number + 1 < len(sizes) else Learned(),
        )
