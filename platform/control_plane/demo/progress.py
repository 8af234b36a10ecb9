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
    """Reports one long step at most every three seconds, and its end."""

    def __init__(self, what: str, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._unit = unit
        self._clock = clock
        self._started_s = clock()
        self._said_s = float("-inf")

    def update(self, done: int, total: int, note: str = "") -> None:
        """Say how far it is, if the last line is old enough or this is the end."""
        now_s = self._clock()
        if done < total and now_s - self._said_s < _EVERY_S:
            return
        self._said_s = now_s
        elapsed_s = max(now_s - self._started_s, 1e-6)
        rate = done / elapsed_s
        left = f"about {(total - done) / rate:.0f} s left" if 0 < done < total else ""
        parts = [f"{self._what}: {done}/{total} {self._unit}", f"{rate:.1f}/s", left, note]
        say("  " + ", ".join(part for part in parts if part))
