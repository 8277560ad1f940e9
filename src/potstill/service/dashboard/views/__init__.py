"""The registry of views, in the order of the navigation: one file and one line here for each."""

from potstill.service.dashboard.view import View
from potstill.service.dashboard.views import decisions, evaluation, experiment, tryit, versions

VIEWS: tuple[View, ...] = (versions.VIEW, tryit.VIEW, decisions.VIEW, evaluation.VIEW, experiment.VIEW)
