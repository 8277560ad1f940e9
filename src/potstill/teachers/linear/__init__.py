"""Bayesian linear regression per action."""
