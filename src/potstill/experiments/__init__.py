"""Randomised experiments as they are served: which arm a unit is in, and what control does."""
