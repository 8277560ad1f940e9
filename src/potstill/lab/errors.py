"""Errors of the lab."""

from __future__ import annotations

from potstill.errors import PotstillError


class LabError(PotstillError, ValueError):
    """A problem, a run or an option of the lab is invalid; the message names the value and the way out."""
