"""Problems whose best action is known, simulated or from tables."""
