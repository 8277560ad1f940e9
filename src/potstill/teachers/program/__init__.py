"""Reward models written as NumPyro programs."""
