"""Skips tests whose real data is missing, with a message on how to get it."""

import pytest

from potstill.lab.problems import data


def needs(source: data.Source) -> pytest.MarkDecorator:
    try:
        data.find(source.name)
    except data.MissingData as error:
        return pytest.mark.skip(reason=str(error))
    return pytest.mark.skipif(False, reason="the data is there")
