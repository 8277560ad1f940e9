"""Locks between processes."""

import os
import threading

from potstill.files import hold


def test_one_holds_it_and_the_others_are_told(tmp_path):
    first = hold(tmp_path / "lock", wait=False)
    assert hold(tmp_path / "lock", wait=False) is None
    os.close(first)
    again = hold(tmp_path / "lock", wait=False)
    assert again is not None
    os.close(again)


def test_whoever_waited_for_a_file_that_was_removed_holds_the_new_one(tmp_path):
    path, held = tmp_path / "lock", []
    first = hold(path, wait=True)
    waiting = threading.Thread(target=lambda: held.append(hold(path, wait=True)))
    waiting.start()
    waiting.join(0.1)
    assert not held
    path.unlink()
    os.close(first)
    waiting.join(20)
    assert os.path.samestat(os.fstat(held[0]), path.stat())
    assert hold(path, wait=False) is None
    os.close(held[0])
