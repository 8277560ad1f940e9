"""The REST interface of Azure Personalizer v1.0, answered by the policy of one problem."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy
from potstill.service.personalizer import wire
from potstill.service.personalizer.paths import EVENT_ID, KEY_HEADER, is_personalizer, match, refused, with_key

if TYPE_CHECKING:
    from potstill.service.personalizer.endpoints import PersonalizerEndpoints

__all__ = ["EVENT_ID", "KEY_HEADER", "PersonalizerEndpoints", "is_personalizer", "match", "refused", "wire", "with_key"]

# Only a service that is asked for it loads what answers.
__getattr__ = lazy(__name__, {"endpoints": ("PersonalizerEndpoints",)})
