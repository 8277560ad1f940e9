"""The lab: simulated problems whose best action is known, and what is run on them."""

from potstill.lab.environment import Environment
from potstill.lab.video import VideoUpload
from potstill.lab.wheel import Wheel

__all__ = ["Environment", "VideoUpload", "Wheel"]
