"""The registry of views, in the order of the navigation: one file and one line here for each."""

from potstill.service.dashboard.view import View
from potstill.service.dashboard.views import apprentice, features, health, overview, versions

VIEWS: tuple[View, ...] = (
    overview.VIEW,
    apprentice.VIEW,
    versions.VIEW,
    features.VIEW,
    health.VIEW,
)
