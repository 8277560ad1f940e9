"""The objective: an arithmetic expression of the action and the outcome, which is maximised instead of the outcome.

It is parsed and never run as code. It must be linear in the outcome, so that its expectation needs only that of the
outcome: objective = coefficient(action)·outcome + constant(action).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidProblem, shown

Float64 = NDArray[np.float64]
#: Longest accepted expression.
_LONGEST = 200
#: Numbers must be smaller than this: integers have no limit, and must fit a float.
_LARGEST = 1e300
#: Largest second difference of a straight line, relative to its size: rounding.
_STRAIGHT = 1e-9
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}


class Objective(msgspec.Struct, frozen=True):
    """A checked objective.

    Attributes:
        text: The expression.
        action: Name of the action.
        outcome: Name of the outcome, which is what is logged as the reward.
    """

    text: str
    action: str
    outcome: str

    def parts(self, actions: Float64) -> tuple[Float64, Float64]:
        """Coefficient of the outcome and constant at actions float64[...]."""
        with np.errstate(all="ignore"):
            at_zero, at_one = (self._value(_tree(self.text), actions, outcome) for outcome in (0.0, 1.0))
        return at_one - at_zero, at_zero

    def values(self, actions: Float64, outcomes: Float64) -> Float64:
        """The objective of outcomes float64[N] at actions float64[N]."""
        coefficient, constant = self.parts(actions)
        return coefficient * outcomes + constant

    def bounds(self, actions: Float64, low: float | None, high: float | None) -> tuple[float | None, float | None]:
        """Smallest and largest objective for outcomes from `low` to `high`; None where nothing is known.

        Coefficient and constant that are linear in the action, as in ``(price - 3) * sold``, have their extremes at
        the ends. Others are not bounded here: a grid does not tell what they are between its points.

        Args:
            actions: Three or more actions, evenly spaced from the smallest to the largest.
            low: Smallest outcome.
            high: Largest outcome.
        """
        parts = np.array(self.parts(actions))
        bends = np.abs(np.diff(parts, n=2, axis=1)).max()
        if low is None or high is None or bends > _STRAIGHT * np.abs(parts).max():
            return None, None
        ends = [
            coefficient * outcome + constant for coefficient, constant in parts[:, [0, -1]].T for outcome in (low, high)
        ]
        return float(min(ends)), float(max(ends))

    def _value(self, node: ast.expr, actions: Float64, outcome: float) -> Float64:
        if isinstance(node, ast.BinOp):
            left, right = (self._value(side, actions, outcome) for side in (node.left, node.right))
            return np.asarray(_OPERATORS[type(node.op)](left, right), np.float64)
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand, actions, outcome)
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.Name):
            return actions if node.id == self.action else np.full(np.shape(actions), outcome)
        return np.full(np.shape(actions), float(node.value))  # type: ignore[attr-defined]


def parse(text: str, action: str, actions: Float64) -> Objective:
    """The objective of an expression; `InvalidProblem` if it is not one.

    Args:
        text: The expression.
        action: Name of the action.
        actions: Actions at which it must be finite.
    """
    names = _check(_tree(text), text)
    others = sorted(names - {action})
    if len(others) != 1:
        found = f"got {', '.join(others)}" if others else "there is none"
        raise _wrong(text, f"must name one outcome beside the action {action!r}, such as '{action} * sold'; {found}")
    _degree(_tree(text), others[0], text)
    objective = Objective(text, action, others[0])
    finite = np.isfinite(objective.parts(actions)).all(axis=0)
    if not finite.all():
        raise _wrong(text, f"must be finite for every action; it is not at {action} = {actions[~finite][0]:g}")
    return objective


def _tree(text: str) -> ast.expr:
    if len(text) > _LONGEST:
        raise _wrong(text[:40] + "…", f"must have at most {_LONGEST} characters, got {len(text)}")
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _wrong(text, f"must be an expression such as 'price * sold': {error}") from None


def _check(node: ast.expr, text: str) -> set[str]:
    """The names of an expression, of which every part is allowed."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _check(node.left, text) | _check(node.right, text)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return _check(node.operand, text)
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Constant) and _is_number(node.value):
        return set()
    raise _wrong(text, f"may have numbers, names, + - * / ** and parentheses, got {ast.unparse(node)!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST


def _degree(node: ast.expr, outcome: str, text: str) -> int:
    """0 or 1, the power of the outcome in an expression; others are refused."""
    if isinstance(node, ast.Name):
        return int(node.id == outcome)
    if isinstance(node, ast.UnaryOp):
        return _degree(node.operand, outcome, text)
    if not isinstance(node, ast.BinOp):
        return 0
    left, right = (_degree(side, outcome, text) for side in (node.left, node.right))
    product = isinstance(node.op, ast.Mult) and left and right
    if product or (isinstance(node.op, ast.Div) and right) or (isinstance(node.op, ast.Pow) and (left or right)):
        raise _wrong(text, f"must be linear in the outcome {outcome!r}; {ast.unparse(node)!r} is not")
    return max(left, right)


def _wrong(text: str, why: str) -> InvalidProblem:
    return InvalidProblem(f"reward: objective {shown(text)} {why}")
