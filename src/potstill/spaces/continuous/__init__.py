"""Actions that are numbers, such as doses. The space is not built yet; only its estimators (``ope``) exist."""

from potstill.spaces.continuous import ope

__all__ = ["ope"]
