"""Single flight: of all who miss one key at the same time, one computes it and the others wait for the result."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpu_runtime.features.keys import FrameKey
from gpu_runtime.features.rows import Entry


@dataclass(slots=True, kw_only=True, eq=False)
class Flight:
    """One computation under way. ``entry`` stays None when it failed: whoever waited tries it himself."""

    landed: threading.Event = field(default_factory=threading.Event)
    entry: Entry | None = None


class Flights:
    """Thread-safe. Whoever claims must land what he claimed, also when he fails."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[FrameKey, Flight] = {}

    def claim(self, keys: Sequence[FrameKey]) -> tuple[list[FrameKey], dict[FrameKey, Flight]]:
        """Keys that are now the caller's to compute, and the flights of others that he may wait for."""
        with self._lock:
            others = {key: self._open[key] for key in keys if key in self._open}
            mine = [key for key in keys if key not in others]
            self._open.update({key: Flight() for key in mine})
        return mine, others

    def land(self, key: FrameKey, entry: Entry | None) -> None:
        """End one's own flight, with its result or with None."""
        with self._lock:
            flight = self._open.pop(key)
        flight.entry = entry
        flight.landed.set()
