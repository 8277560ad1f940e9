"""The lake: Delta tables of decisions, rewards and observations."""
