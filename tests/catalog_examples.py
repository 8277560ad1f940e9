"""A shop whose items have a price and a genre: customers like one genre each, and cheap items."""

import msgspec
import numpy as np

import potstill as ps
from potstill.events import LoggedDecision, LoggedReward
from potstill.keys import Key
from potstill.workspace import Workspace, items_text

HOUR = 3_600_000_000
NOON = 20_000 * 24 * HOUR + 12 * HOUR
GENRES = ["rock", "jazz", "folk"]
PROBLEM = b"""
name = "shop"
[[context]]
type = "categorical"
name = "likes"
values = ["rock", "jazz", "folk"]
[actions]
type = "catalog"
[[actions.features]]
type = "numeric"
name = "price"
low = 0
high = 20
[[actions.features]]
type = "categorical"
name = "genre"
values = ["rock", "jazz", "folk"]
[reward]
window = "1h"
"""
CONFIG = b"""
[student]
hidden = [16]
steps = 200
contexts = 512
[update]
min_observations = 50
"""


def item(number: int, **changes: object) -> dict[str, object]:
    return {"id": f"i{number}", "price": float(number % 20), "genre": GENRES[number % 3], **changes}


def shop(place: str, count: int = 20) -> Workspace:
    return Workspace.create(place, PROBLEM, CONFIG, items_text(map(item, range(count))))


def reward(context: dict[str, str], chosen: dict[str, object]) -> float:
    return float(context["likes"] == chosen["genre"]) - float(chosen["price"]) / 20  # type: ignore[arg-type]


def log(workspace: Workspace, n: int, seed: int = 0, at: int = NOON, *, restricted: bool = False) -> ps.Policy:
    """Decide n times with the serving policy, and log decisions and rewards; some may state eligible items."""
    policy, rng = workspace.start(), Key(seed).generator()
    items = {one["id"]: one for one in workspace.problem.actions.items}
    events = []
    for i in range(n):
        context = {"likes": str(rng.choice(GENRES))}
        decision = policy.decide(
            context, id=f"visit-{seed}-{i}", eligible=list(items)[-9:] if restricted and i % 5 == 0 else None
        )
        events.append(LoggedDecision.of(decision, context, time=at + i * 1000))
        value = reward(context, items[decision.action]) + 0.1 * float(rng.standard_normal())
        events.append(LoggedReward(id=decision.id, reward=value, time=at + i * 1000 + 60_000_000))
    with workspace.event_log() as opened:
        opened.append(*events)
    return policy


def rate(policy: ps.Policy) -> float:
    """The mean reward of a policy."""
    contexts = [{"likes": genre} for genre in GENRES]
    rewards = np.array([[reward(context, one) for one in policy.problem.actions.items] for context in contexts])
    return float((policy.probabilities_many(contexts) * rewards).sum(axis=1).mean())


def stated(workspace: Workspace) -> list[dict[str, object]]:
    return msgspec.json.decode(workspace.storage.read("items.json"))
