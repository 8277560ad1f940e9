"""Exact probability that each action is the best, by quadrature instead of posterior draws.

Let F_a be the distribution function of action a's reward and G = ∏ F_b that of the largest reward. Then

    P_a = ∫ f_a ∏_{b≠a} F_b dx = ∫ G d(log F_a).

The right-hand side is computed panel by panel. G and every log F_a are interpolated by polynomials at Chebyshev
points, so that the integral over a panel is a fixed bilinear form in the nodal values. It needs no density, and
neither the panel length nor the change of variable enters. Error control: the P_a of a panel must sum to the rise of
G across it, which the end points give. A panel that fails, because something narrow lies between its nodes, is halved.

Two choices make it fast. log F_a, the only costly function, is interpolated from a table. The integration variable is
t with x = c + s·sinh(t), where c and s are the location and scale of the action with the highest low quantile. An
action ahead of c is then about as wide as its lead or wider, so panels of one length in t fit narrow and wide actions
alike, and three or four panels per row are enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
from numpy.polynomial import chebyshev, legendre
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline
from scipy.special import stdtr, stdtrit

from potstill.errors import InvalidOption

Floats = NDArray[np.float64]

_TOLERANCE = 1e-7  # error allowed per panel, as a probability
_TAIL = 1e-8  # probability cut off at either end of a row's range
_LEAD = 3.0  # a row is centred on the action with the largest location - _LEAD * scale
_CORE = 2.0  # scales around the centre over which t is nearly linear in x
_PANEL = 3.0  # initial panel length in t; with 17 nodes, the cheapest of 2 to 4 on LinearTS posteriors
_DEPTH = 50  # halvings that bring an initial panel to floating-point resolution
_DENSITY = 128  # table cells per unit of asinh(z); leaves log F an error of 1e-9
_LEAST_DOF = 1 / 32  # below this, the relevant rewards exceed 1e150 scales and double precision
_FAR = 1e75  # cap on ratios of scales; its square caps locations and quantiles
_BLOCK = 65_536  # values of log F held at once: 512 KB, so that temporaries stay in the L2 cache
_SLAB = 65_536  # rows times actions per thread task


def probability_best(
    location: ArrayLike, scale: ArrayLike, dof: ArrayLike, eligible: NDArray[np.bool_] | None = None
) -> NDArray[np.float32]:
    """The probability that each action has the largest reward, for independent Student-t rewards.

    ``location[N, K]`` and ``scale[N, K]`` are per context and action, ``dof[K]`` is per action (``inf`` for a
    normal). With ``eligible[N, K]``, the largest among the eligible actions of each row counts, and the others get 0.
    Returns ``float32[N, K]`` whose rows sum to one. The error is about 1e-7 in total variation, a few
    1e-6 at worst, at any ratio of scales; smaller probabilities may be returned as 0. The result of a row depends,
    bit for bit, only on that row and ``dof``.

    >>> probability_best([[0, 0], [1, 0]], [[1, 2], [1, 1]], [5, np.inf]).round(3)
    array([[0.5  , 0.5  ],
           [0.745, 0.255]], dtype=float32)
    """
    mean, width, freedom = _validate(location, scale, dof)
    among = _validate_mask(eligible, mean.shape)
    rows, actions = mean.shape
    table = _LogCdf.tabulate(freedom, tail=_TAIL / actions)
    best = np.empty((rows, actions), np.float32)

    def fill(slab: slice) -> None:
        mask = None if among is None else among[slab]
        best[slab] = _integrate(_Rows.standardise(mean[slab], width[slab], mask), table)

    size = max(1, _SLAB // actions)
    with ThreadPoolExecutor(getattr(os, "process_cpu_count", os.cpu_count)() or 1) as pool:
        list(pool.map(fill, [slice(i, i + size) for i in range(0, rows, size)]))  # list: re-raises exceptions of fill
    return best


def _validate(location: ArrayLike, scale: ArrayLike, dof: ArrayLike) -> tuple[Floats, Floats, Floats]:
    mean, width, freedom = (np.asarray(values, np.float64) for values in (location, scale, dof))
    if mean.ndim != 2 or mean.shape[1] == 0:
        raise InvalidOption(f"location must have shape [N, K] with K >= 1, got {list(mean.shape)}")
    for name, values, shape in (("scale", width, mean.shape), ("dof", freedom, mean.shape[1:])):
        if values.shape != shape:
            raise InvalidOption(f"{name} must have shape {list(shape)} to match location, got {list(values.shape)}")
    _check("location", mean, ~np.isfinite(mean), "a finite number")
    _check("scale", width, ~(np.isfinite(width) & (width > 0)), "a finite number above 0")
    _check("dof", freedom, ~(freedom >= _LEAST_DOF), f"at least {_LEAST_DOF}, or inf for a normal")
    return mean, width, freedom


def _validate_mask(eligible: NDArray[np.bool_] | None, shape: tuple[int, ...]) -> NDArray[np.bool_] | None:
    if eligible is None or np.all(eligible):
        return None
    if eligible.shape != shape or eligible.dtype != bool:
        raise InvalidOption(
            f"eligible must be bool{list(shape)} to match location, got {eligible.dtype}{list(eligible.shape)}"
        )
    if not eligible.any(axis=1).all():
        raise InvalidOption(f"eligible[{int((~eligible.any(axis=1)).argmax())}] allows no action")
    return eligible


def _check(name: str, values: Floats, wrong: NDArray[np.bool_], expected: str) -> None:
    if wrong.any():
        index = np.argwhere(wrong)[0].tolist()
        raise InvalidOption(f"{name}{index} must be {expected}, got {values[tuple(index)]}")


@dataclass(frozen=True)
class _LogCdf:
    """log F of each action's standard Student-t as a cubic spline in asinh(z), which suits heavy and light tails."""

    coefficients: Floats  # [4, distinct dof * cells], highest power first
    start: NDArray[np.intp]  # [K], first cell of each action's dof
    cells: int
    reach: Floats  # [K], upper `tail` quantile of each action, in z

    @classmethod
    def tabulate(cls, dof: Floats, tail: float) -> _LogCdf:
        distinct, which = np.unique(dof, return_inverse=True)
        reach = np.minimum(-stdtrit(distinct, tail), _FAR**2)
        half = int(np.ceil(np.arcsinh(reach.max()) * _DENSITY))
        above = stdtr(distinct[:, None], -np.sinh(np.arange(half + 1) / _DENSITY))
        below = np.maximum(above[:, :0:-1], 1e-300)
        log_cdf = np.concatenate([np.log(below), np.log1p(-above)], axis=1)
        coefficients = CubicSpline(np.arange(2 * half + 1), log_cdf, axis=1).c.transpose(0, 2, 1).reshape(4, -1)
        return cls(coefficients, which * 2 * half, 2 * half, reach[which])

    def __call__(self, z: Floats, action: NDArray[np.intp]) -> Floats:
        """Log F[Q, n] of action[Q] at z[Q, n]; overwrites z."""
        position = np.arcsinh(z, out=z)
        position *= _DENSITY
        position += self.cells // 2
        np.clip(position, 0, np.nextafter(self.cells, 0), out=position)
        cell = position.astype(np.intp)
        position -= cell
        cell += self.start[action, None]
        value: Floats = self.coefficients[0].take(cell)
        for coefficient in self.coefficients[1:]:
            value *= position
            value += coefficient.take(cell)
        return value


@dataclass(frozen=True)
class _Panels:
    """Intervals of t, each in one row."""

    row: NDArray[np.intp]  # [P]
    left: Floats  # [P]
    right: Floats  # [P]

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, which: slice | NDArray[np.bool_]) -> _Panels:
        return _Panels(self.row[which], self.left[which], self.right[which])

    def halves(self) -> _Panels:
        middle = (self.left + self.right) / 2
        left, right = np.stack([self.left, middle], axis=1), np.stack([middle, self.right], axis=1)
        return _Panels(np.repeat(self.row, 2), left.ravel(), right.ravel())

    def blocks(self, size: int) -> Iterator[_Panels]:
        return (self[i : i + size] for i in range(0, len(self), size))


@dataclass(frozen=True)
class _Rows:
    """Locations and scales in units of each row's centre. Actions are the first axis, for lookups in their tables."""

    location: Floats  # [K, R]
    scale: Floats  # [K, R]

    @classmethod
    def standardise(cls, location: Floats, scale: Floats, eligible: NDArray[np.bool_] | None) -> _Rows:
        if eligible is not None:
            # An action at -inf is below every node, so that its F is 1 there: no factor of G, and no share.
            location, scale = np.where(eligible, location, -np.inf), np.where(eligible, scale, 0.0)
        with np.errstate(over="ignore"):
            centre = np.argmax(location - _LEAD * scale, axis=1)[:, None]
            unit = np.maximum(np.take_along_axis(scale, centre, axis=1), scale.max(axis=1, keepdims=True) / _FAR)
            # Subtract before dividing: exact for nearby locations at any distance from zero.
            ahead = (location - np.take_along_axis(location, centre, axis=1)) / unit
        at = np.clip(ahead, -(_FAR**2), _FAR**2)
        if eligible is not None:
            at[~eligible] = -np.inf
        columns = at.T, np.maximum(scale / unit, 1 / _FAR).T
        return cls(*map(np.ascontiguousarray, columns))

    def panels(self, reach: Floats) -> _Panels:
        """Initial panels, over the range that holds the largest reward except for `_TAIL` at either end."""
        spread = self.scale * reach[:, None]
        # The margin keeps an action inside that is narrower than rounding and sits on the left end.
        left = np.arcsinh((self.location - spread).max(axis=0) / _CORE) - 1e-9
        right = np.arcsinh((self.location + spread).max(axis=0) / _CORE)
        count = np.ceil((right - left) / _PANEL).astype(np.intp)
        row = np.repeat(np.arange(len(count)), count)
        place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        length = ((right - left) / count)[row]
        return _Panels(row, left[row] + place * length, left[row] + (place + 1) * length)

    def log_cdf(self, panels: _Panels, table: _LogCdf) -> Floats:
        """Log F[K, P, n] at the nodes of the panels."""
        x = _CORE * np.sinh(panels.left[:, None] * (1 - _POINTS) + panels.right[:, None] * _POINTS)
        location, scale = self.location.take(panels.row, axis=1), self.scale.take(panels.row, axis=1)
        # Beyond an action's reach F is 1. On most posteriors that skips half of all (action, panel) pairs.
        pair = np.flatnonzero(x[:, 0] < location + scale * table.reach[:, None])
        action, panel = np.divmod(pair, len(panels))
        z = x.take(panel, axis=0)
        z -= location.take(pair)[:, None]
        z /= scale.take(pair)[:, None]
        values = np.zeros((location.size, len(_POINTS)))
        values[pair] = table(z, action)
        return values.reshape(*location.shape, -1)


def _integrate(rows: _Rows, table: _LogCdf) -> Floats:
    """P[R, K]. The order in which a row's panels are summed depends on that row only."""
    actions, count = rows.location.shape
    size = max(1, _BLOCK // (actions * len(_POINTS)))
    total = np.zeros((count, actions))
    panels = rows.panels(table.reach)
    for rule in chain(repeat(_smooth, _DEPTH), [_stepped]):
        failed = []
        for block in panels.blocks(size):
            share, accepted = rule(rows.log_cdf(block, table))
            np.add.at(total, block.row[accepted], share[accepted])
            failed.append(~accepted)
        panels = panels[np.concatenate(failed)].halves()
        if not len(panels):
            break
    np.maximum(total, 0, out=total)
    total /= total.sum(axis=1, keepdims=True)
    return total


def _smooth(log_cdf: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """The share[P, K] of each action in each panel, and which panels[P] to accept, from log F[K, P, n].

    For smooth functions the error of the rule on every other node is about the square root of the full rule's error,
    hence the square. For other functions the sum of the shares misses the rise of G.
    """
    best = np.exp(log_cdf.sum(axis=0))
    share = _bilinear(best, _FORM, log_cdf)
    doubt = np.abs(share - _bilinear(best[:, ::2], _HALF_FORM, log_cdf[..., ::2])).sum(axis=1)
    rise = best[:, -1] - best[:, 0]
    missed = np.abs(share.sum(axis=1) - rise)
    return share, (missed <= _TOLERANCE) & (doubt**2 <= _TOLERANCE * (rise + _TOLERANCE))


def _stepped(log_cdf: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """As `_smooth`, for panels too short to halve, where F_a jumps: the rise of F_a times the mean of ∏_{b≠a} F_b."""
    ends = log_cdf[..., [0, -1]]
    log_best = ends.sum(axis=0)
    share = np.diff(np.exp(ends))[..., 0] * np.exp(log_best - ends).mean(axis=-1)
    share = np.ascontiguousarray(np.maximum(share, 0).T)
    rise = np.diff(np.exp(log_best))
    share *= rise / np.maximum(share.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return share, np.ones(len(share), np.bool_)


def _bilinear(best: Floats, form: Floats, log_cdf: Floats) -> Floats:
    """∫ G d(log F_a) as [P, K], from G[P, n], form[n, n] and log F[K, P, n].

    No sum runs along the panels, and the order of summation does not depend on their number. einsum guarantees this;
    BLAS does not.
    """
    weights = np.einsum("pi,ij->pj", best, form)
    shares: Floats = np.einsum("pj,kpj->pk", weights, log_cdf)
    return shares


def _bilinear_form(points: Floats) -> Floats:
    """form[i, j] = ∫ p_i dp_j over [-1, 1], with p_i the Lagrange polynomial of points[i]."""
    degree = len(points) - 1
    cardinal = np.linalg.inv(chebyshev.chebvander(points, degree))
    x, weight = legendre.leggauss(len(points))
    value = chebyshev.chebval(x, cardinal)
    slope = chebyshev.chebval(x, chebyshev.chebder(cardinal))
    form: Floats = (value * weight) @ slope.T
    return form


_CHEBYSHEV = chebyshev.chebpts2(17)
_POINTS = (_CHEBYSHEV + 1) / 2  # nodes on [0, 1], both ends included
_FORM = _bilinear_form(_CHEBYSHEV)
_HALF_FORM = _bilinear_form(_CHEBYSHEV[::2])
