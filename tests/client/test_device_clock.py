"""A device whose clock is wrong, or is set, between a decision and its reward."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from potstill import clock
from potstill.client import EdgeClient, device_clock
from potstill.client.device_clock import DeviceClock, Uptime

SECOND, DAY = clock.SECOND, 86_400 * clock.SECOND
NOW = 1_800_000_000 * SECOND


class Device:
    """A device whose clocks the test sets."""

    def __init__(self, monkeypatch):
        self.wall, self.uptime, self.boot = NOW, 5 * DAY, "boot-1"
        monkeypatch.setattr(device_clock, "wall", lambda: self.wall)
        monkeypatch.setattr(device_clock, "since_boot", lambda: self.uptime)
        monkeypatch.setattr(device_clock, "boot_id", lambda: self.boot)
        monkeypatch.setattr(device_clock.CLOCK, "now", lambda: self.wall)

    def row(self):
        return body(self.wall), device_clock.uptime()

    def wait(self, elapsed):
        self.wall += elapsed
        self.uptime += elapsed


def body(moment):
    return json.dumps(
        {"id": "a", "time": (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)).isoformat()}
    ).encode()


def sent(row):
    return device_clock._microseconds(datetime.fromisoformat(json.loads(row)["time"]))


def date(moment):
    return f"{moment / 1e6:.3f}"


@pytest.fixture
def device(monkeypatch):
    return Device(monkeypatch)


def test_a_clock_that_is_put_right_between_decision_and_reward(device):
    device.wall -= 2 * DAY
    decision, taken = device.row()
    device.wait(10 * SECOND)
    device.wall += 2 * DAY
    reward, rewarded = device.row()
    service = DeviceClock()
    service.hear(date(device.wall))
    assert sent(service.corrected(decision, taken)) == NOW
    assert service.corrected(reward, rewarded) == reward


def test_a_clock_that_is_still_wrong_is_corrected_by_that_of_the_service(device):
    device.wall -= 2 * DAY
    decision, taken = device.row()
    device.wait(30 * SECOND)
    service = DeviceClock()
    assert service.corrected(decision, taken) == decision  # nothing is known yet
    assert not service.is_known
    service.hear(date(NOW + 30 * SECOND))
    assert service.is_known
    assert sent(service.corrected(decision, taken)) == NOW
    device.boot, device.uptime = "boot-2", 0
    assert sent(service.corrected(decision, taken)) == NOW


def test_small_differences_and_stated_times_are_left_alone(device):
    row, taken = device.row()
    service = DeviceClock()
    service.hear(date(NOW + 59 * SECOND))
    assert service.corrected(row, taken) == row
    service.hear(date(NOW + 2 * DAY))
    assert service.corrected(row, None) == row
    assert service.corrected(row, taken) != row


@pytest.mark.parametrize("header", [None, "", "yesterday", "1e999"])
def test_a_bad_header_tells_nothing(device, header):
    service = DeviceClock()
    service.hear(header)
    assert not service.is_known


def test_unknown_uptime_is_no_reading(device):
    device.uptime = None
    assert device_clock.uptime() == Uptime("", 0)


def test_rows_of_a_device_with_a_wrong_clock_arrive_with_the_services_time(
    service, context, tmp_path, quick, monkeypatch
):
    behind = timedelta(days=2)
    with EdgeClient(service.url, tmp_path / "edge", survives="process", **quick) as edge:
        with monkeypatch.context() as patch:
            wrong = lambda: datetime.now(UTC) - behind  # noqa: E731
            patch.setattr("potstill.client.edge.now", wrong)
            decision = edge.decide(context)
        edge.reward(decision.id, 1.0)
        edge.sync()
    [observed] = service.observations[decision.id]
    [reward] = next(iter(service.rewards.values()))
    apart = datetime.fromisoformat(reward["time"]) - datetime.fromisoformat(observed["time"])
    assert abs(apart) < timedelta(seconds=10)
    posts = [path.rpartition("/")[2] for method, path, _ in service.requests if method == "POST"]
    assert posts == ["reward", "observe"]
