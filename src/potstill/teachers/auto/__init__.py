"""Auto-TS: several teachers at once, weighted by how well each predicted rewards before it learnt from them."""

from potstill.teachers.auto.auto_ts import CANDIDATES, AutoState, AutoTS

__all__ = ["CANDIDATES", "AutoState", "AutoTS"]
