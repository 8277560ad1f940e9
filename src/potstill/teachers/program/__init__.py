"""Reward models written as NumPyro programs."""

from potstill.teachers.program.config import program_config, program_from
from potstill.teachers.program.model_file import ModelFile
from potstill.teachers.program.program_ts import ProgramTS

__all__ = ["ModelFile", "ProgramTS", "program_config", "program_from"]
