"""The write-ahead log: events are on disk before they are acknowledged."""
