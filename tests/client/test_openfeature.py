"""The OpenFeature provider, through OpenFeature's own client and against the service that fails on demand."""

import pytest
from examples import random_layers
from fake_service import running

import potstill as ps
from potstill.client import Client

openfeature = pytest.importorskip("openfeature")

from openfeature import api  # noqa: E402
from openfeature.evaluation_context import EvaluationContext  # noqa: E402
from openfeature.exception import ErrorCode  # noqa: E402
from openfeature.flag_evaluation import Reason  # noqa: E402
from openfeature.hook import Hook  # noqa: E402
from openfeature.telemetry import TelemetryAttribute, create_evaluation_event  # noqa: E402
from openfeature.track import TrackingEventDetails  # noqa: E402

from potstill.client.openfeature import PotstillProvider  # noqa: E402


@pytest.fixture
def flags(service, quick):
    """OpenFeature's client, whose provider decides by the service."""
    client = Client(service.url, reward_every=1000, **quick)
    api.set_provider_and_wait(PotstillProvider({"quality": client}, rewards={"uploaded": "quality"}))
    yield api.get_client()
    api.clear_providers()


def asked(context, key="user-1", **more):
    return EvaluationContext(key, {**context, "country": "DE", **more})


def test_a_flag_is_a_decision(flags, service, policy, context):
    found = flags.get_string_details("quality", "360p", asked(context, decision_id="a"))
    decision = policy.decide(context, id="a")
    assert (found.value, found.variant, found.reason) == (decision.action, decision.action, Reason.SPLIT)
    metadata = {"id": "a", "propensity": decision.propensity, "mode": "online", "version": "3"}
    assert found.flag_metadata == metadata
    # What is no feature is left out; the targeting key is the unit.
    assert service.bodies[-1] == {"context": context, "id": "a", "unit": "user-1"}


def test_a_tracking_event_is_the_reward_of_the_latest_decision(flags, service, context):
    first = flags.get_string_details("quality", "360p", asked(context, "ann")).flag_metadata["id"]
    second = flags.get_string_details("quality", "360p", asked(context, "bob")).flag_metadata["id"]
    flags.track("uploaded", EvaluationContext("ann"), TrackingEventDetails(0.5))
    flags.track("uploaded", EvaluationContext("bob"))
    flags.track("uploaded", EvaluationContext("ann"), TrackingEventDetails(2.0, {"decision_id": second}))
    flags.track("uploaded", EvaluationContext("nobody"))
    flags.track("opened", EvaluationContext("ann"))
    api.shutdown()  # sends what is pending
    sent = sorted((name, row["reward"]) for (name, _), rows in service.rewards.items() for row in rows)
    assert sent == sorted([(first, 0.5), (second, 1.0), (second, 2.0)])


def test_a_service_that_is_away_gives_the_default(flags, service, context):
    service.faults = [503] * 50
    found = flags.get_string_details("quality", "480p", asked(context))
    assert (found.value, found.error_code) == ("480p", ErrorCode.GENERAL)


def test_a_fallback_of_the_client_is_a_default(service, quick, context):
    with Client(service.url, fallback="360p", **quick) as client:
        provider = PotstillProvider({"quality": client})
        provider.initialize(EvaluationContext())
        service.faults = [503] * 50
        found = provider.resolve_string_details("quality", "480p", asked(context))
    assert (found.value, found.reason, found.flag_metadata["mode"]) == ("360p", Reason.DEFAULT, "fallback")
    assert "version" not in found.flag_metadata


def test_what_does_not_fit_names_the_reason(flags, context):
    found = flags.get_string_details("quality", "480p", asked(context, bandwidth_kbps=float("nan")))
    assert (found.value, found.error_code) == ("480p", ErrorCode.INVALID_CONTEXT)
    assert "bandwidth_kbps" in found.error_message
    found = flags.get_string_details("colour", "red")
    assert (found.error_code, found.error_message) == (
        ErrorCode.FLAG_NOT_FOUND,
        "there is no flag 'colour'; the provider has quality",
    )
    for get, default in ((flags.get_boolean_details, True), (flags.get_float_details, 1.5)):
        found = get("quality", default, asked(context))
        assert (found.value, found.error_code) == (default, ErrorCode.TYPE_MISMATCH)
    assert flags.get_object_details("quality", {}, asked(context)).error_code == ErrorCode.TYPE_MISMATCH
    with pytest.raises(ValueError, match="event 'uploaded' rewards flag 'qualty', which is not among quality"):
        PotstillProvider({"quality": None}, rewards={"uploaded": "qualty"})


@pytest.mark.parametrize(
    ("actions", "method", "default", "kind"),
    [
        (ps.Discrete(["on", "off"]), "boolean", False, bool),
        (ps.Discrete(["10", "20"]), "integer", 5, int),
        (ps.Discrete(["0.5", "1.5"]), "float", 5.0, float),
        (ps.Continuous("price", low=1, high=9), "float", 5.0, float),
    ],
)
def test_actions_are_flags_of_their_type(quick, actions, method, default, kind):
    problem = ps.Problem(name="typed", context=[ps.Boolean("b")], actions=actions)
    policy = ps.Policy.build(problem, random_layers(problem), version=1)
    with running(policy) as service, Client(service.url, **quick) as client:
        provider = PotstillProvider({"flag": client})
        resolve = getattr(provider, f"resolve_{method}_details")
        found = resolve("flag", default, EvaluationContext("u", {"b": True, "decision_id": "x"}))
    action = policy.decide({"b": True}, id="x").action
    assert type(found.value) is kind
    assert found.value == ({"on": True, "off": False}[action] if kind is bool else kind(action))


def test_evaluations_are_events_of_telemetry(flags, context):
    """OpenFeature's hooks make the event `feature_flag.evaluation` of OpenTelemetry from the metadata."""
    events = []

    class Telemetry(Hook):
        def finally_after(self, hook_context, details, hints):
            events.append(create_evaluation_event(hook_context, details))

    flags.add_hooks([Telemetry()])
    found = flags.get_string_details("quality", "360p", asked(context))
    (event,) = events
    assert event.name == "feature_flag.evaluation"
    assert event.attributes == {
        TelemetryAttribute.KEY: "quality",
        TelemetryAttribute.EVALUATION_REASON: "split",
        TelemetryAttribute.VARIANT: found.value,
        TelemetryAttribute.CONTEXT_ID: "user-1",
        TelemetryAttribute.VERSION: "3",
        TelemetryAttribute.PROVIDER_NAME: "potstill",
    }
