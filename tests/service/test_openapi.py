"""The OpenAPI document: valid, typed by each problem, and the service conforms to it for generated requests."""

import json
import os

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

import potstill as ps
from potstill.service import wire
from potstill.service.app import create_app
from potstill.service.limits import Options
from potstill.service.metrics import Metrics
from potstill.service.openapi import document
from potstill.service.routes import PROBLEM_ENDPOINTS, SERVICE_ENDPOINTS
from potstill.service.schemas import PLACE, example_context, examples
from potstill.workspace import Workspace, template

EXAMPLES = int(os.environ.get("POTSTILL_EXAMPLES", "20"))
ODD = ps.Problem(
    name="prix / été {n°1} #2",
    context=[
        ps.Numeric("a b", low=-1, high=1, missing="flag"),
        ps.Categorical("$ref", ["x", "null"], missing="error"),
        ps.Boolean("é", missing=True),
        ps.Text("title", size=8, missing="flag"),
        ps.Timestamp("at", missing="flag"),
        ps.Timestamp("since", unit="ms", missing="flag"),
    ],
    actions=ps.Discrete(["b", "a"]),
    reward=ps.Reward(low=-2.0),
)


@pytest.fixture
def found(problem):
    return document([problem, ODD], closed={problem.name, ODD.name})


def schema_of(found, problem, name):
    """A component with everything that it refers to, as a plain JSON schema."""
    schemas = found["components"]["schemas"]
    (full,) = [key for key in schemas if key.startswith(problem) and key.endswith(f".{name}")]
    return {"$ref": f"#/$defs/{full}", "$defs": json.loads(json.dumps(schemas).replace(PLACE, "#/$defs/"))}


def accepts(found, problem, name, value):
    return Draft202012Validator(schema_of(found, problem, name)).is_valid(value)


# ---- the document


@pytest.mark.parametrize("secured", [False, True])
def test_it_is_valid_openapi(problem, secured):
    for problems in ([], [problem], [problem, ODD]):
        OpenAPIV31SpecValidator(document(problems, closed=[one.name for one in problems] if secured else ())).validate()


def test_paths_are_as_requests_must_write_them(found):
    assert "/v1/video-upload/decide" in found["paths"]
    assert "/v1/prix%20%2F%20%C3%A9t%C3%A9%20%7Bn%C2%B01%7D%20%232/decide/batch" in found["paths"]


def test_every_operation_needs_its_scope_where_tokens_are_needed(found, problem):
    for row in PROBLEM_ENDPOINTS:
        shown = found["paths"][f"/v1/video-upload/{row.path}"][row.method.lower()]
        assert shown["security"] == [{"token": [row.scope]}]
        assert {"401", "403", "503"} <= shown["responses"].keys()
    assert found["paths"]["/metrics"]["get"]["security"] == [{"token": ["read"]}]
    assert {"200", "401", "403", "404", "503"} == found["paths"]["/metrics"]["get"]["responses"].keys()
    unsecured = document([problem])
    assert "securitySchemes" not in unsecured["components"]
    assert unsecured["paths"]["/v1/video-upload/decide"]["post"]["security"] == []


def test_a_problem_without_tokens_needs_none_beside_one_with_tokens(problem):
    found = document([problem, ODD], closed={ODD.name})
    security = {path: next(iter(methods.values()))["security"] for path, methods in found["paths"].items()}
    assert {bool(needed) for path, needed in security.items() if path.startswith("/v1/video-upload/")} == {False}
    assert {bool(needed) for path, needed in security.items() if path.startswith("/v1/prix")} == {True}
    assert security["/metrics"] == []  # it shows what the caller may see
    assert "securitySchemes" in found["components"]
    hidden = document([problem], closed={ODD.name}, hidden=1)
    assert hidden["x-hidden"] == 1
    assert "securitySchemes" in hidden["components"]


def test_contexts_are_typed_by_the_problem(found, context):
    good = {"context": context, "eligible": ["720p"], "id": "x", "unit": "y", "action": None}
    assert accepts(found, "video", "DecideRequest", good)
    assert accepts(found, "video", "DecideRequest", {"context": {**context, "connection": None}})
    for wrong in (
        {},
        {"context": {**context, "bandwidth_kbps": "900"}},
        {"context": {**context, "hd_screen": None}},
        {"context": {**context, "other": 1}},
        {"context": {key: context[key] for key in ("bandwidth_kbps", "connection")}},
        {"context": context, "eligible": []},
        {"context": context, "eligible": ["4k"]},
        {"context": context, "id": ""},
        {"context": context, "more": 1},
    ):
        assert not accepts(found, "video", "DecideRequest", wrong), wrong


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("title", "x" * 4096, True),
        ("title", "x" * 4097, False),
        ("at", "2024-02-29T12:00:00.5+05:30", True),
        ("at", "2024-02-29", True),
        ("at", "2025-02-29", False),
        ("at", "2026-01-31T12:00:00Z\n", False),
        ("since", 1_700_000_000_000, True),
        ("since", 1e18, False),
    ],
)
def test_texts_and_times_have_their_limits_in_the_document_and_on_the_wire(found, name, value, fits):
    request = {"context": {"a b": 0, "$ref": "x", "é": True, name: value}}
    assert accepts(found, "prix", "DecideRequest", request) == fits
    try:
        wire.Requests(ODD).read_decide(json.dumps(request))
    except msgspec.ValidationError:
        assert not fits
    else:
        assert fits


def test_rewards_have_the_bounds_of_the_problem(found):
    assert accepts(found, "prix", "RewardRequest", {"id": "x", "reward": -2})
    assert not accepts(found, "prix", "RewardRequest", {"id": "x", "reward": -2.1})
    assert accepts(found, "video", "RewardRequest", {"id": "x", "reward": -2.1})


def test_fields_and_actions_keep_their_order(found):
    decide = found["components"]["schemas"]["prix----t---n-1---2-1.DecideRequest"]
    assert decide["properties"]["eligible"]["anyOf"][0]["items"]["enum"] == ["b", "a"]
    assert list(decide["properties"]) == ["context", "id", "eligible", "unit", "action", "propensity"]


@pytest.mark.parametrize("which", ["video", "odd"])
def test_examples_fit_their_schemas_and_the_wire(found, problem, which):
    shown = problem if which == "video" else ODD
    for name, example in examples(shown).items():
        assert accepts(found, shown.name[:4], name, example), name
    requests = wire.Requests(shown)
    requests.read_decide(json.dumps(examples(shown)["DecideRequest"]))
    requests.read_batch(json.dumps(examples(shown)["BatchRequest"]))
    requests.read_observe(json.dumps(examples(shown)["ObserveRequest"]))
    shown.encode(example_context(shown))


# ---- the service against it


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    place = tmp_path_factory.mktemp("api") / "video"
    workspace = Workspace.create(place, template.PROBLEM.encode(), template.CONFIG.encode())
    app = create_app([workspace], Options(metrics=Metrics))
    # Too many at once is refused with 413, which is not among what the library takes for a refusal.
    refusals = {"negative_data_rejection": {"expected-statuses": [400, 404, 413, 422]}}
    config = schemathesis.Config.from_dict({"checks": refusals})
    return schemathesis.openapi.from_asgi("/openapi.json", app, config=config)


POSTS = [f"/v1/video-upload/{row.path}" for row in PROBLEM_ENDPOINTS if row.method == "POST"]
GETS = [f"/v1/video-upload/{row.path}" for row in PROBLEM_ENDPOINTS if row.method == "GET"]


@pytest.mark.parametrize("path", [*POSTS, *GETS, *(f"/{row.path}" for row in SERVICE_ENDPOINTS)])
def test_the_service_does_as_the_document_says(api, path):
    """No 5xx, no status, type, header or body that is not stated, and what does not fit the schema is refused."""
    method = "POST" if path in POSTS else "GET"
    sent = api[path][method].as_strategy(generation_mode=GenerationMode.POSITIVE)
    if path in POSTS:
        sent |= api[path][method].as_strategy(generation_mode=GenerationMode.NEGATIVE)

    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    @given(sent)
    def holds(case):
        # What fits the document may still not fit the mode of the service, or be a time that no table holds.
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    holds()
