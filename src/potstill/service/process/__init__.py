"""The processes of `potstill serve`."""
