"""Rankings and slates. The space is not built yet; only its estimators (``ope``) exist."""

from potstill.spaces.ranking import ope

__all__ = ["ope"]
