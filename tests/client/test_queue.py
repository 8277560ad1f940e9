"""The queue on disk."""

import sqlite3
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.client.device_clock import Uptime
from potstill.client.errors import QueueFull
from potstill.client.queue import Queue, Row


def opened(folder, **options):
    return Queue(folder / "queue.sqlite", **{"limit": 1000, "survives": "process", **options})


def decision(name, body=b"{}"):
    return Row("decision", name, body)


def everything(queue):
    found = [row for kind in ("decision", "reward") for row in queue.oldest(kind, 10_000, 10**9, queue.newest())]
    return sorted(found, key=lambda row: row.number)


def ids(queue):
    return [row.id for row in everything(queue)]


def test_rows_come_back_in_order_after_a_restart(tmp_path):
    queue = opened(tmp_path)
    for i in range(5):
        queue.append(decision(f"d{i}", b'{"i":%d}' % i))
        queue.append(Row("reward", f"d{i}", b"{}"))
    queue.close()
    queue = opened(tmp_path)
    rows = everything(queue)
    assert [(row.kind, row.id) for row in rows] == [(k, f"d{i}") for i in range(5) for k in ("decision", "reward")]
    assert [row.body for row in rows if row.kind == "decision"] == [b'{"i":%d}' % i for i in range(5)]
    assert len(queue) == 10
    queue.close()


@pytest.mark.parametrize(("survives", "level"), [("power", 2), ("process", 1)])
def test_how_durable_it_is(tmp_path, survives, level):
    queue = opened(tmp_path, survives=survives)
    assert queue._database.execute("PRAGMA synchronous").fetchone() == (level,)
    assert queue._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    queue.append(decision("a"))
    queue.close()


def test_what_it_survives_is_one_of_two(tmp_path):
    with pytest.raises(ValueError, match='"power" or "process", got \'all\''):
        opened(tmp_path, survives="all")


def test_a_batch_is_bounded_by_rows_bytes_and_the_last_number(tmp_path):
    queue = opened(tmp_path)
    for i in range(6):
        queue.append(decision(f"d{i}", b"x" * 100))
    last = queue.newest()
    queue.append(decision("later"))
    assert [row.id for row in queue.oldest("decision", 3, 10**9, until=last)] == ["d0", "d1", "d2"]
    assert [row.id for row in queue.oldest("decision", 10, 250, until=last)] == ["d0", "d1"]
    assert [row.id for row in queue.oldest("decision", 10, 1, until=last)] == ["d0"]
    assert len(queue.oldest("decision", 10, 10**9, until=last)) == 6
    assert [row.id for row in queue.oldest("decision", 10, 10**9, until=last, after=4)] == ["d4", "d5"]
    assert queue.oldest("reward", 10, 10**9, until=last) == []
    queue.close()


def test_numbers_are_never_used_again(tmp_path):
    queue = opened(tmp_path)
    queue.append(decision("a"))
    last = queue.newest()
    queue.remove(everything(queue))
    queue.append(decision("b"))
    assert queue.oldest("decision", 10, 10**9, until=last) == []
    queue.close()


def test_a_decision_is_there_once(tmp_path):
    queue = opened(tmp_path)
    assert queue.append(decision("a", b"first")).earlier is None
    assert queue.append(decision("a", b"second")).earlier == b"first"
    queue.append(Row("reward", "a", b"1"))
    queue.append(Row("reward", "a", b"2"))
    assert [row.body for row in everything(queue)] == [b"first", b"1", b"2"]
    assert len(queue) == 3
    queue.close()


def test_a_full_queue_keeps_the_oldest(tmp_path):
    queue = opened(tmp_path, limit=3)
    for i in range(3):
        queue.append(decision(f"d{i}"))
    with pytest.raises(QueueFull, match="3 rows to send and 0 that were refused, of 3 allowed"):
        queue.append(decision("late"))
    queue.set_aside(everything(queue)[0], "no")
    with pytest.raises(QueueFull, match="2 rows to send and 1 that were refused"):
        queue.append(decision("late"))
    queue.discard_refused()
    queue.append(decision("room"))
    assert ids(queue) == ["d1", "d2", "room"]
    queue.close()


def test_a_full_disk_says_so_and_loses_nothing(tmp_path):
    queue = opened(tmp_path)
    queue.append(decision("a"))
    pages = queue._database.execute("PRAGMA page_count").fetchone()[0]
    queue._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(QueueFull, match=r"cannot be written, nothing was added: .*full"):
        queue.append(decision("b", b"x" * 100_000))
    assert ids(queue) == ["a"]
    queue._database.execute("PRAGMA max_page_count = 100000")
    queue.append(decision("b", b"x" * 100_000))
    assert ids(queue) == ["a", "b"]
    queue.close()


def test_refused_rows_can_be_sent_again(tmp_path):
    queue = opened(tmp_path)
    for i in range(4):
        queue.append(decision(f"d{i}"))
    for row in everything(queue)[:2]:
        queue.set_aside(row, f"{row.id} is bad")
    assert [(row.id, row.reason) for row in queue.refused()] == [("d0", "d0 is bad"), ("d1", "d1 is bad")]
    assert (len(queue), queue.refused_count) == (2, 2)
    queue.close()
    queue = opened(tmp_path)
    assert (len(queue), queue.refused_count) == (2, 2)
    queue.requeue_refused()
    assert (len(queue), queue.refused_count) == (4, 0)
    assert ids(queue) == ["d2", "d3", "d0", "d1"]
    queue.close()


def at_once(count, work):
    threads = [threading.Thread(target=work, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_threads_lose_nothing(tmp_path):
    queue = opened(tmp_path)
    for thread in at_once(8, lambda k: [queue.append(decision(f"{k}-{i}")) for i in range(50)]):
        thread.join()
    assert sorted(ids(queue)) == sorted(f"{k}-{i}" for k in range(8) for i in range(50))
    assert len(queue) == 400
    queue.close()


def test_threads_share_a_transaction(tmp_path):
    """While one waits for the disk, the others gather; and each is told of an earlier decision of its own id."""
    queue = opened(tmp_path)
    queue.append(decision("d3", b"before"))
    statements, earlier = [], {}
    queue._database.set_trace_callback(statements.append)
    with queue._use:  # the disk is slow
        threads = at_once(8, lambda k: earlier.update({k: queue.append(decision(f"d{k}")).earlier}))
        while len(queue._open_group.rows) < 8:
            time.sleep(0.001)
    for thread in threads:
        thread.join()
    queue._database.set_trace_callback(None)
    assert statements.count("COMMIT") == statements.count("BEGIN IMMEDIATE") == 1
    assert earlier == {k: b"before" if k == 3 else None for k in range(8)}
    assert sorted(ids(queue)) == [f"d{k}" for k in range(8)]
    assert len(queue) == 8
    queue.close()


def test_an_interrupted_thread_does_not_deceive_the_others(tmp_path):
    queue = opened(tmp_path)
    outcomes = {}

    def work(k):
        try:
            outcomes[k] = queue.append(decision(f"d{k}"))
        except BaseException as error:
            outcomes[k] = error

    def interrupted(_):
        raise KeyboardInterrupt

    insert, queue._insert = queue._insert, interrupted
    with queue._use:
        threads = at_once(3, work)
        while len(queue._open_group.rows) < 3:
            time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert sorted(type(error).__name__ for error in outcomes.values()) == ["KeyboardInterrupt", *["RuntimeError"] * 2]
    queue._insert = insert
    queue.append(decision("after"))
    assert ids(queue) == ["after"]
    queue.close()


@pytest.mark.parametrize("damage", ["garbage", "truncated", "page"])
def test_a_corrupt_file_is_moved_aside(tmp_path, caplog, damage):
    path = tmp_path / "queue.sqlite"
    queue = opened(tmp_path)
    for i in range(200):
        queue.append(decision(f"d{i}", b"x" * 500))
    queue.close()
    data = bytearray(path.read_bytes())
    if damage == "garbage":
        data = bytearray(b"not a database, but long enough to be looked at" * 100)
    elif damage == "truncated":
        del data[len(data) // 2 :]
    else:
        data[4096:8192] = bytes(range(256)) * 16
    path.write_bytes(data)
    queue = opened(tmp_path)
    assert queue.moved_aside == tmp_path / "queue.sqlite.corrupt-1"
    assert queue.moved_aside.read_bytes() == data
    assert "is corrupt" in caplog.text
    assert len(queue) == 0
    queue.append(decision("fresh"))
    queue.close()
    path.write_bytes(b"garbage again" * 100)
    queue = opened(tmp_path)
    assert queue.moved_aside == tmp_path / "queue.sqlite.corrupt-2"
    queue.close()


def test_a_file_that_cannot_be_opened_is_left_alone(tmp_path):
    (tmp_path / "queue.sqlite").mkdir()
    with pytest.raises(sqlite3.OperationalError):
        opened(tmp_path)


@given(st.lists(st.tuples(st.sampled_from(["add", "send", "refuse", "again", "discard"]), st.integers(0, 5))))
def test_against_a_list(tmp_path_factory, steps):
    """Any sequence of operations leaves what a list and another list would hold."""
    folder = tmp_path_factory.mktemp("queue")
    queue, model, refused = opened(folder, limit=8), [], []
    for step, n in steps:
        rows = everything(queue)[:n]
        if step == "add" and len(model) + len(refused) < 8 and f"d{n}" not in model:
            queue.append(decision(f"d{n}"))
            model.append(f"d{n}")
        elif step == "send":
            queue.remove(rows)
            del model[:n]
        elif step == "refuse" and rows and rows[0].id not in refused:
            queue.set_aside(rows[0], "no")
            refused.append(model.pop(0))
        elif step == "again":
            queue.requeue_refused()
            model += [name for name in refused if name not in model]
            refused = []
        elif step == "discard":
            queue.discard_refused()
            refused = []
        assert (len(queue), queue.refused_count) == (len(model), len(refused))
    assert ids(queue) == model
    assert [row.id for row in queue.refused()] == refused
    queue.close()


def test_a_file_of_an_earlier_version_is_widened(tmp_path):
    database = sqlite3.connect(tmp_path / "queue.sqlite")
    database.execute(
        "CREATE TABLE queue (number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, id TEXT NOT NULL,"
        " body BLOB NOT NULL)"
    )
    database.execute("INSERT INTO queue (kind, id, body) VALUES ('decision', 'old', '{}')")
    database.commit()
    database.close()
    queue = opened(tmp_path)
    queue.append(Row("decision", "new", b"{}", Uptime("boot", 5)))
    assert [(row.id, row.taken) for row in everything(queue)] == [("old", None), ("new", ("boot", 5))]
    queue.close()
