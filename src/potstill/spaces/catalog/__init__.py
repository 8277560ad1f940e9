"""Items with features. The module ``ope`` is loaded only offline."""

from potstill.spaces.catalog.space import Catalog

__all__ = ["Catalog"]
