"""Trials of algorithms on problems."""
