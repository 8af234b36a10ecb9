"""Sums a process keeps between two reads, so that a refresh reads new rows only."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

from django.db.models import Max

from jobs.models import DeviceSpan

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class _Entry(Generic[V]):
    value: V
    lock: Lock = field(default_factory=Lock)


class Kept(Generic[K, V]):
    """At most ``most`` values by key; the one used longest ago goes first. One thread at a time has a value."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._lock = Lock()

    @contextmanager
    def value(self, key: K, make: Callable[[], V]) -> Iterator[V]:
        """The key's value, for the time of the block. One that raised is forgotten: it may be half counted."""
        with self._lock:
            entry = self._entries.get(key) or self._entries.setdefault(key, _Entry(make()))
            self._entries.move_to_end(key)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
        with entry.lock:
            try:
                yield entry.value
            except BaseException:
                with self._lock:
                    if self._entries.get(key) is entry:
                        del self._entries[key]
                raise


def newest_span() -> int:
    """Up to which span one can read now.

    Keys grow in the order in which spans become visible: only ingest writes them, under the lock of its journal. A
    late span, whatever the time it tells of, is therefore among the next ones.
    """
    return DeviceSpan.objects.aggregate(newest=Max("pk"))["newest"] or 0
