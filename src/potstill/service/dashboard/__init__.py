"""The pages of the service: server-rendered HTML, one file and one registry line for each view."""

from potstill.service.dashboard.endpoints import pages

__all__ = ["pages"]
