"""Retries, on a clock of their own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.client import Retry, Unreachable
from potstill.client.retry import exchange
from potstill.client.sansio import NoReply, Reply, Request, Send, run

REQUEST = Request("POST", "decide", b"{}")
GOOD = Reply(200, {}, b"{}")
BROKEN = NoReply("ConnectError: refused")


class World:
    """Time passes only when somebody waits; outcomes come from a list, the last one for ever."""

    def __init__(self, outcomes, takes=0.0):
        self.now, self.outcomes, self.takes = 0.0, list(outcomes), takes
        self.sent, self.pauses = [], []

    def send(self, step: Send):
        self.sent.append(step)
        self.now += min(self.takes, step.seconds)
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds

    def exchange(self, **options):
        retry = Retry(clock=lambda: self.now, **{"jitter": lambda: 0.0, **options})
        return run(exchange(REQUEST, retry), self.send, self.sleep)


def test_a_good_answer_is_returned_at_once():
    world = World([GOOD])
    assert world.exchange() is GOOD
    assert world.pauses == []
    assert world.sent == [Send(REQUEST, 2.0)]


def test_pauses_double_up_to_the_longest():
    world = World([BROKEN] * 5 + [GOOD])
    assert world.exchange(retries=5, timeout=100, pause=1.0, longest=6.0) is GOOD
    assert world.pauses == [1, 2, 4, 6, 6]
    assert [step.seconds for step in world.sent] == [100, 99, 97, 93, 87, 81]


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_an_overloaded_service_is_asked_again(status):
    world = World([Reply(status, {}, b""), GOOD])
    assert world.exchange() is GOOD


@pytest.mark.parametrize("status", [200, 202, 304, 400, 401, 404, 409, 422, 500])
def test_other_answers_are_final(status):
    reply = Reply(status, {}, b"")
    world = World([reply])
    assert world.exchange() is reply
    assert len(world.sent) == 1


def test_a_longer_pause_that_the_service_asks_for_is_made():
    world = World([Reply(503, {"retry-after": "1"}, b""), GOOD])
    assert world.exchange() is GOOD
    assert world.pauses == [1.0]


@pytest.mark.parametrize("stated", ["soon", "nan", "inf", "-3", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_pause_that_makes_no_sense_is_none(stated):
    world = World([Reply(503, {"retry-after": stated}, b""), GOOD])
    assert world.exchange(pause=0.25) is GOOD
    assert world.pauses == [0.25]


def test_a_pause_longer_than_the_time_left_is_not_waited_for():
    world = World([Reply(503, {"retry-after": "60"}, b"")])
    with pytest.raises(Unreachable, match=r"POST decide: the service answered 503; 1 attempts were made"):
        world.exchange()
    assert world.now == 0.0


def test_attempts_are_counted():
    world = World([BROKEN])
    with pytest.raises(Unreachable, match="ConnectError: refused; 4 attempts"):
        world.exchange(retries=3)
    assert len(world.sent) == 4


@given(
    takes=st.floats(0, 3),
    timeout=st.floats(0.01, 10),
    pause=st.floats(0.001, 2),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_the_total_time_is_kept(takes, timeout, pause, jitter):
    world = World([BROKEN], takes)
    with pytest.raises(Unreachable):
        world.exchange(retries=50, timeout=timeout, pause=pause, jitter=lambda: jitter)
    assert world.now <= timeout + 0.002  # the least that an attempt is given is a millisecond


@given(attempt=st.integers(0, 2000), jitter=st.floats(0, 1, exclude_max=True))
def test_jitter_takes_up_to_half(attempt, jitter):
    full = Retry(pause=0.1, longest=5.0, jitter=lambda: 0.0).backoff(attempt)
    assert full / 2 <= Retry(pause=0.1, longest=5.0, jitter=lambda: jitter).backoff(attempt) <= full <= 5.0
