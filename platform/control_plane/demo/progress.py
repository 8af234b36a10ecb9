"""Plain progress lines: what, how far, how fast, how long still. The same in a terminal and in a log."""

import sys
import time
from collections.abc import Callable

_EVERY_S = 3.0


def say(text: str) -> None:
    """One line for people, on stderr, so that stdout can end with one line for scripts."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Progress:
    """Reports one long step at most every three seconds, and its end.

    The rate counts from the first piece on: what comes before it (compiling, loading) does not repeat.
    """

    def __init__(self, what: str, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._unit = unit
        self._clock = clock
        self._said_s = float("-inf")
        self._first: tuple[float, int] | None = None

    def due(self) -> bool:
        """Whether a line now would be said; finding out what to note may cost something."""
        return self._clock() - self._said_s >= _EVERY_S

    def update(self, done: int, total: int, note: str = "") -> None:
        """Say how far it is, if the last line is old enough or this is the end."""
        now_s = self._clock()
        if done > 0 and self._first is None:
            self._first = (now_s, done)
        if done < total and now_s - self._said_s < _EVERY_S:
            return
        self._said_s = now_s
        parts = [f"{self._what}: {done}/{total} {self._unit}", *self._pace(done, total, now_s), note]
        say("  " + ", ".join(part for part in parts if part))

    def _pace(self, done: int, total: int, now_s: float) -> list[str]:
        if self._first is None or now_s - self._first[0] < 1.0 or done == self._first[1]:
            return []
        rate = (done - self._first[1]) / (now_s - self._first[0])
        left = f"about {(total - done) / rate:.0f} s left" if done < total else ""
        return [f"{rate:.1f}/s", left]
