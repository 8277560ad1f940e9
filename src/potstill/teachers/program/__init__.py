"""Reward models written as NumPyro programs."""

from potstill.teachers.program.config import program_config, program_from
from potstill.teachers.program.continuous_ts import ContinuousProgramTS
from potstill.teachers.program.model_file import ModelFile
from potstill.teachers.program.program_ts import ProgramTS

__all__ = ["ContinuousProgramTS", "ModelFile", "ProgramTS", "program_config", "program_from"]
