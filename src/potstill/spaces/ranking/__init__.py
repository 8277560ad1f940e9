"""Rankings and slates. The space is not built yet; only its estimators (``ope``) exist."""
