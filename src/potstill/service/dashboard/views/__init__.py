"""The registry of views, in the order of the navigation: one file and one line here for each."""

from potstill.service.dashboard.view import View
from potstill.service.dashboard.views import (
    apprentice,
    decisions,
    evaluation,
    experiment,
    features,
    health,
    overview,
    tryit,
    versions,
)

VIEWS: tuple[View, ...] = (
    overview.VIEW,
    apprentice.VIEW,
    versions.VIEW,
    evaluation.VIEW,
    experiment.VIEW,
    features.VIEW,
    tryit.VIEW,
    decisions.VIEW,
    health.VIEW,
)
