"""Observations in parts, as a workspace has them in its lake."""

from itertools import pairwise


class Parts:
    """Observations cut at some places, and how often each part was read."""

    def __init__(self, observations, cuts=()):
        places = [0, *sorted(cuts), len(observations)]
        self.parts = [observations[a:b] for a, b in pairwise(places)]
        self.read = 0

    def each(self, function, *common):
        for number, part in enumerate(self.parts):
            self.read += 1
            yield function(number, part, *common)
