"""The join: decisions and rewards become observations."""
