"""Selects a policy's runtime: the native kernel where it was built, else NumPy.

Both take the same decisions, as specified in `docs/policy-format.md`. `POTSTILL_RUNTIME=numpy` or `native` selects for
the process, `Policy.with_runtime` for one policy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from potstill.policy import native_runtime
from potstill.policy.artifact import Metadata
from potstill.policy.contract import Runtime, RuntimeName
from potstill.policy.native_runtime import RUNTIMES
from potstill.policy.network import Layer
from potstill.policy.oracle import Oracle
from potstill.spaces import Head

VARIABLE = "POTSTILL_RUNTIME"


def start(metadata: Metadata, layers: Sequence[Layer], head: Head, name: RuntimeName | None) -> Runtime:
    """The runtime of a policy: the one named, or else the `default`.

    A head that the native kernel does not support runs in NumPy, unless the kernel was requested by name.
    """
    chosen = default() if name is None else _checked(name)
    if chosen == "native" and head.kernel not in RUNTIMES:
        if name == "native":
            raise RuntimeError(f"the native kernel has no {head.kernel or type(head).__name__} head; use 'numpy'")
        chosen = "numpy"
    return RUNTIMES[head.kernel](metadata, layers, head) if chosen == "native" else Oracle(metadata, layers, head)


def default() -> RuntimeName:
    """The runtime of policies without a named one."""
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
        raise RuntimeError(f"the native runtime was requested, but {reason}")
    return "native"
