"""Commands in the files for deployment are commands of Potstill, and the files fit each other."""

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from potstill.cli import app

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "examples/deploy"


def documents(name):
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def containerfile():
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    return {key: yaml.safe_load(value) for key, value in re.findall(r"^(ENTRYPOINT|CMD|EXPOSE|USER) (.+)$", text, re.M)}


def commands():
    """Arguments of `potstill`, by the place that has them."""
    yield "Containerfile", containerfile()["CMD"]
    for name, service in documents("compose.yaml")[0]["services"].items():
        if service.get("image") == "potstill":
            yield f"compose.yaml, {name}", service["command"]
    for document in documents("kubernetes.yaml"):
        for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            yield f"kubernetes.yaml, {container['name']}", container["args"]
    unit = (DEPLOY / "potstill.service").read_text(encoding="utf-8")
    yield "potstill.service", shlex.split(re.search(r"^ExecStart=(.+)$", unit, re.M)[1])[1:]
    for page in (*DEPLOY.iterdir(), ROOT / "docs/deploy.md"):
        text = page.read_text(encoding="utf-8").replace("\\\n#", "")
        for words in re.findall(
            r"(?:--rm service|bin/potstill|[#&] +potstill) ((?:init|token|serve) [^>&\n`#]+)", text
        ):
            yield f"{page.name}: {words}", shlex.split(words)


def parsed(arguments):
    """The deepest context of a command line; `click.UsageError` if it does not fit."""
    command, context, rest = typer.main.get_command(app), None, arguments
    while rest is not None:
        context = command.make_context("potstill", list(rest), parent=context, resilient_parsing=False)
        if not hasattr(command, "commands"):
            return context
        _, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    raise AssertionError(arguments)


@pytest.mark.parametrize(("place", "arguments"), [pytest.param(*pair, id=pair[0]) for pair in commands()])
def test_commands_are_those_of_the_command_line(place, arguments):
    assert "potstill" not in arguments
    parsed(arguments)


def test_there_are_commands_in_every_file():
    found = " ".join(place for place, _ in commands())
    for name in ("Containerfile", "compose.yaml", "kubernetes.yaml", "potstill.service", "deploy.md"):
        assert name in found


def test_containers_run_as_the_image_says():
    image = containerfile()
    assert image["ENTRYPOINT"] == ["potstill"]
    for document in documents("kubernetes.yaml"):
        if document["kind"] in ("Deployment", "StatefulSet"):
            assert document["spec"]["template"]["spec"]["securityContext"]["runAsUser"] == image["USER"]
    (service,) = [d for d in documents("kubernetes.yaml") if d["kind"] == "StatefulSet"]
    (container,) = service["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": image["EXPOSE"]}]


def test_compose_mounts_files_that_exist():
    compose = documents("compose.yaml")[0]
    mounts = [mount for service in compose["services"].values() for mount in service["volumes"] if mount[0] == "."]
    assert len(mounts) == 5
    for mount in mounts:
        assert (DEPLOY / mount.split(":")[0]).is_file(), mount
    assert (DEPLOY / compose["x-potstill"]["build"]["context"]).resolve() == ROOT
