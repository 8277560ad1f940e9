"""Reward models written as NumPyro programs."""

from potstill.teachers.program.program_ts import ProgramTS

__all__ = ["ProgramTS"]
