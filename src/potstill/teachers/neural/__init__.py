"""Teachers that learn a network."""
