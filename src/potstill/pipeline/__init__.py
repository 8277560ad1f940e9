"""A workspace's update, and what looks back at it."""
