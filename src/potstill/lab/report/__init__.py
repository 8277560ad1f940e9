"""The report on finished trials."""
