"""Engines: where the work of an update is done. Each maps the same functions over the same items."""

from potstill.pipeline.engines.contract import Engine, EngineFailed, MissingEngine
from potstill.pipeline.engines.local import LocalEngine
from potstill.pipeline.engines.opening import ENGINES, open_engine

__all__ = ["ENGINES", "Engine", "EngineFailed", "LocalEngine", "MissingEngine", "open_engine"]
