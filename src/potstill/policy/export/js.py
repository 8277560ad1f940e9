"""Policy to JavaScript: an ES module that contains the policy, and the runtime.

`name.js` exports `policy`, ready to decide. `potstill/` is the package in `js/`, which can also load `.policy` files.
`example.mjs` shows the use in Node; the same import works in a browser.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

from potstill._version import __version__
from potstill.policy.policy import Policy

#: The runtime is in this package if installed (setup.py copies it here), and in js/ in a checkout.
_PLACES = (Path(__file__).parents[1] / "js", Path(__file__).parents[4] / "js")
_RUNTIME = ("potstill.js", "potstill.d.ts", "package.json", "src")


def write(policy: Policy, directory: Path, name: str) -> list[Path]:
    """Write the module, its types, the runtime and an example."""
    if name in ("potstill", "example"):
        raise ValueError(f"the name {name!r} is taken by another file of the export; give the policy another one")
    runtime = _copy_runtime(directory / "potstill")
    contents = {
        f"{name}.js": _module(policy),
        f"{name}.d.ts": 'import { Policy } from "./potstill/potstill.js";\n\nexport const policy: Policy;\n',
        "example.mjs": _example(policy, name),
    }
    for file, text in contents.items():
        (directory / file).write_text(text, encoding="utf-8")
    return [*(directory / file for file in contents), runtime]


def javascript_runtime() -> Path:
    """The folder of the JavaScript runtime: ``potstill.js`` and ``src/``."""
    source = next((place for place in _PLACES if (place / "potstill.js").exists()), None)
    if source is None:
        raise FileNotFoundError(f"the JavaScript runtime is not in {_PLACES[0]}; install Potstill again")
    return source


def _copy_runtime(to: Path) -> Path:
    source = javascript_runtime()
    to.mkdir(exist_ok=True)
    for part in _RUNTIME:
        if (source / part).is_dir():
            shutil.copytree(source / part, to / part, dirs_exist_ok=True)
        else:
            shutil.copyfile(source / part, to / part)
    return to / "potstill.js"


def _module(policy: Policy) -> str:
    encoded = base64.b64encode(policy.to_bytes()).decode()
    title = json.dumps(policy.problem.name).replace("*/", "* /")
    return f"""\
/* Policy {title} version {policy.version}, exported by Potstill {__version__}. Generated: do not edit. */
import {{ Policy }} from "./potstill/potstill.js";

const encoded =
  "{encoded}";

export const policy = Policy.load(Uint8Array.from(atob(encoded), (character) => character.charCodeAt(0)));
"""


def _example(policy: Policy, name: str) -> str:
    context = {feature.name: feature.example for feature in policy.problem.context}
    return f"""\
import {{ policy }} from "./{name}.js";

const context = {json.dumps(context, ensure_ascii=False)};
console.log(policy.decide(context, {{ id: "example" }}));
"""
