"""Processes of their own that publish: in competition, or until they are killed.

python publishers.py compete PLACE ROUNDS: prints the versions that it published.
python publishers.py killed-after-calls PLACE COUNT...: each in PLACE/COUNT, dead after so many calls to the storage.
python publishers.py killed-in-files PLACE COUNT...: each in PLACE/COUNT, dead before so many names of files change.

Those that are killed publish version 2 after entry 1.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import potstill as ps
from potstill.policy import Policy
from potstill.registry import Conflict, Registry
from potstill.storage import Storage, open_storage

PROBLEM = ps.Problem(name="greeting", context=[ps.Boolean("returning")], actions=ps.Discrete(["hi", "welcome back"]))
FILE_OPERATIONS = ("os.link", "os.rename", "os.remove")


def publish(registry: Registry, version: int, expected: int) -> None:
    """Publish a policy that no other process would."""
    registry.publish(
        Policy.uniform(registry.problem, version=version, seed=os.getpid()),
        teacher=b"state %d" % version,
        report=b"report of %d by %d" % (version, os.getpid()),
        expected=expected,
    )


def compete(place: str, rounds: int) -> None:
    registry = Registry(open_storage(place), PROBLEM)
    for _ in range(rounds):
        head = registry.head()
        version, expected = (head.latest + 1, head.number) if head else (1, 0)
        try:
            publish(registry, version, expected)
        except Conflict:
            continue
        print(version)


class KillingStorage:
    """A storage that ends its process after so many calls, as a machine that loses power would."""

    def __init__(self, storage: Storage, calls: int) -> None:
        self._storage, self._calls = storage, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        return self._counted(found) if callable(found) else found

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return function(*arguments, **options)
            finally:
                self._calls -= 1
                if self._calls == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        return call


def killed_after_calls(place: str, count: int) -> None:
    storage: Any = KillingStorage(open_storage(place), count)
    publish(Registry(storage, PROBLEM), version=2, expected=1)


def killed_in_files(place: str, count: int) -> None:
    left = count

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in FILE_OPERATIONS and place in str(arguments[0]):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    registry = Registry(open_storage(place), PROBLEM)
    sys.addaudithook(hook)
    publish(registry, version=2, expected=1)


def each_in_a_child(function: Callable[[str, int], None], place: str, counts: list[int]) -> None:
    """Print how each child ended: 0, or 9 if it was killed. Nothing has started threads here, so forking is safe."""
    for count in counts:
        child = os.fork()
        if not child:
            function(f"{place}/{count}", count)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


if __name__ == "__main__":
    what, place, *numbers = sys.argv[1:]
    if what == "compete":
        compete(place, int(numbers[0]))
    else:
        function = killed_after_calls if what == "killed-after-calls" else killed_in_files
        each_in_a_child(function, place, [int(number) for number in numbers])
