"""Bad rows are found by halving, and good ones all arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.client.errors import Refused, Unreachable
from potstill.client.sansio import run
from potstill.client.sync import upload


def sending(rows, bad, status=422):
    accepted, refused, posts = [], [], []

    def post(some):
        posts.append(list(some))
        if any(row in bad for row in some):
            raise Refused(status, "does not fit")
        return
        yield

    run(upload(rows, post, accepted.extend, lambda row, reason: refused.append((row, reason))), None, None)
    return accepted, refused, posts


@given(rows=st.lists(st.integers(), min_size=1, max_size=60, unique=True), data=st.data())
def test_each_row_is_accepted_or_refused_once_and_in_order(rows, data):
    bad = set(data.draw(st.lists(st.sampled_from(rows), max_size=5)))
    accepted, refused, posts = sending(rows, bad)
    assert accepted == [row for row in rows if row not in bad]
    assert refused == [(row, "does not fit") for row in rows if row in bad]
    assert len(posts) <= 1 + 2 * len(bad) * 6  # halving 60 rows takes six steps


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_of_the_client_stops_everything(status):
    with pytest.raises(Refused):
        sending([1, 2, 3], {2}, status)


def test_an_interruption_keeps_what_was_accepted():
    accepted = []

    def post(rows):
        if rows == [1, 2, 3, 4]:
            raise Refused(422, "does not fit")
        if 3 in rows:
            raise Unreachable("cut")
        return
        yield

    with pytest.raises(Unreachable):
        run(upload([1, 2, 3, 4], post, accepted.extend, None), None, None)
    assert accepted == [1, 2]
