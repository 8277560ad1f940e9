"""Auto-TS: several teachers at once, stacked by how well they predicted rewards before they learnt from them."""

from potstill.teachers.auto.auto_ts import CANDIDATES, AutoState, AutoTS

__all__ = ["CANDIDATES", "AutoState", "AutoTS"]
