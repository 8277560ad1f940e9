"""Action spaces: what can be chosen."""
