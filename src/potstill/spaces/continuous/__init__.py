"""Actions that are numbers, such as doses. The space is not built yet; only its estimators (``ope``) exist."""
