"""Gaussian processes over (context, action)."""
