"""Which runtime a policy decides with: the native kernel where it was built, NumPy everywhere else.

Both take the same decisions; `docs/policy-format.md` says which. `POTSTILL_RUNTIME=numpy` or `native` chooses for a
whole process, and `Policy.with_runtime` for one policy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from potstill.policy import native_runtime
from potstill.policy.artifact import Metadata
from potstill.policy.contract import Runtime, RuntimeName
from potstill.policy.native_runtime import NativeRuntime
from potstill.policy.network import Layer
from potstill.policy.oracle import Oracle

VARIABLE = "POTSTILL_RUNTIME"


def start(metadata: Metadata, layers: Sequence[Layer], name: RuntimeName | None) -> Runtime:
    """The runtime of a policy: the one named, or else what `default` says."""
    chosen = default() if name is None else _checked(name)
    return NativeRuntime(metadata, layers) if chosen == "native" else Oracle(metadata, layers)


def default() -> RuntimeName:
    """The runtime of policies for which none was named."""
    if stated := os.environ.get(VARIABLE):
        return _checked(stated)
    return "numpy" if why_not_native() else "native"


def why_not_native() -> str | None:
    """Why the native kernel cannot be used; None if it can."""
    return native_runtime.WHY_NOT


def _checked(name: str) -> RuntimeName:
    if name == "numpy":
        return "numpy"
    if name != "native":
        raise RuntimeError(f"a runtime is 'native' or 'numpy', got {name!r}")
    if reason := why_not_native():
        raise RuntimeError(f"the native runtime was asked for, but {reason}")
    return "native"
