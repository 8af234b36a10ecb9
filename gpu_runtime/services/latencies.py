"""How long requests took over a trailing window."""

from collections import deque

import numpy as np

_KEPT_MAX = 20_000  # the newest; a window of more requests is judged by these


class Latencies:
    """Times are monotonic, in microseconds."""

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._taken: deque[tuple[int, int]] = deque(maxlen=_KEPT_MAX)  # when it was answered, how long it took

    def add(self, now_us: int, taken_us: int) -> None:
        """One request was answered."""
        self._taken.append((now_us, taken_us))

    def quantile_ms(self, now_us: int, share: float) -> float | None:
        """Milliseconds within which ``share`` of the requests were answered; None when there were none."""
        while self._taken and self._taken[0][0] <= now_us - self._window_us:
            self._taken.popleft()
        if not self._taken:
            return None
        return round(float(np.quantile([taken_us for _, taken_us in self._taken], share)) / 1000, 3)
