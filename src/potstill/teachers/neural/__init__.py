"""Teachers based on neural networks."""

from potstill.teachers.neural import network, noise_selection
from potstill.teachers.neural.base import Neural
from potstill.teachers.neural.bootstrap_ts import BootstrapTS
from potstill.teachers.neural.greedy import EpsilonGreedy, GreedyState, NeuralGreedy
from potstill.teachers.neural.low_rank_ts import LowRankTS
from potstill.teachers.neural.network import Networks, Units, standard
from potstill.teachers.neural.neural_linear_ts import NeuralLinearTS
from potstill.teachers.neural.neural_logistic_ts import NeuralLogisticTS
from potstill.teachers.neural.noise_selection import Noise
from potstill.teachers.neural.recipe import PAPER, Recipe

__all__ = [
    "PAPER",
    "BootstrapTS",
    "EpsilonGreedy",
    "GreedyState",
    "LowRankTS",
    "Networks",
    "Neural",
    "NeuralGreedy",
    "NeuralLinearTS",
    "NeuralLogisticTS",
    "Noise",
    "Recipe",
    "Units",
    "network",
    "noise_selection",
    "standard",
]
