"""HTTP decisions and rewards: what `potstill serve` runs."""
