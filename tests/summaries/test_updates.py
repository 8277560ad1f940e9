"""The record of updates: what a page shows of the last one, also of one that was killed."""

import msgspec

from potstill.storage import LocalStorage
from potstill.summaries import UpdateRun, read_updates, record_update


def run(began, **about):
    return UpdateRun(began=began, **about)


def test_a_run_that_ends_replaces_itself_while_it_ran(tmp_path):
    storage = LocalStorage(tmp_path)
    record_update(storage, run(1, every=600.0))
    assert read_updates(storage).last.outcome == "running"
    record_update(storage, run(1, ended=3_000_001, outcome="published", every=600.0, version=4))
    [only] = read_updates(storage).runs
    assert (only.outcome, only.seconds, only.due) == ("published", 3.0, 603_000_001)


def test_runs_that_found_nothing_to_do_are_counted_as_one(tmp_path):
    storage = LocalStorage(tmp_path)
    for began in range(5):
        record_update(storage, run(began))
        record_update(storage, run(began, ended=began + 1, outcome="waiting", joined=2))
    record_update(storage, run(9, ended=10, outcome="failed", why="x" * 10_000))
    waited, failed = read_updates(storage).runs
    assert (waited.runs, waited.joined, waited.began) == (5, 10, 4)
    assert len(failed.why) == 2000


def test_a_killed_run_stays_and_the_next_one_follows_it(tmp_path):
    storage = LocalStorage(tmp_path)
    record_update(storage, run(1))
    record_update(storage, run(2, ended=3, outcome="published"))
    assert [one.outcome for one in read_updates(storage).runs] == ["running", "published"]


def test_a_damaged_record_is_none(tmp_path):
    storage = LocalStorage(tmp_path)
    storage.replace("summaries/updates.json", b'{"runs": [{"began": "yes')
    assert read_updates(storage).last is None
    record_update(storage, run(1))
    assert msgspec.json.decode(storage.read("summaries/updates.json"))["runs"]
