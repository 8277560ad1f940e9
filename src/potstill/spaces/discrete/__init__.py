"""A fixed list of actions."""
