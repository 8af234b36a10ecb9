"""Several threads that do the same thing at the same moment, each with its own database connection."""

import threading
from collections.abc import Callable
from typing import TypeVar

from django.db import connections

T = TypeVar("T")


def all_at_once(work: Callable[[int], T], *, count: int = 8) -> list[T | Exception]:
    """What each of ``count`` threads returned or raised; they start together."""
    barrier = threading.Barrier(count)
    outcomes: list[T | Exception] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            outcomes.append(work(number))
        except Exception as error:
            outcomes.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
