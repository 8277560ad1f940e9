"""Off-policy estimates: what a policy would have earned on what was logged; and the analysis of experiments."""
