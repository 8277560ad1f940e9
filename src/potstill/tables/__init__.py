"""Other people's tables: reading them, and what their columns become."""
