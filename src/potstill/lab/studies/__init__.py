"""Studies of imitation error and update cadence."""
