"""Progress of a long step on standard error: a line for people, or one JSON object per line for programs."""

import json
import sys
import time
from typing import TextIO

_EVERY_S = {True: 0.5, False: 2.0}


class Progress:
    """Counts one phase. ``tick`` reports at most every half second (two for people), ``finish`` always."""

    def __init__(self, phase: str, total: int, unit: str, *, as_json: bool, stream: TextIO | None = None) -> None:
        self._phase, self._total, self._unit, self._as_json = phase, total, unit, as_json
        self._stream = stream or sys.stderr
        self._done, self._started_s = 0, time.monotonic()
        self._reported_s = self._started_s
        self._report()

    def tick(self) -> None:
        """One more is done."""
        self._done += 1
        if time.monotonic() - self._reported_s >= _EVERY_S[self._as_json]:
            self._report()

    def finish(self) -> None:
        """The phase is over."""
        self._report()

    def _report(self) -> None:
        self._reported_s = time.monotonic()
        elapsed_s = self._reported_s - self._started_s
        rate = self._done / elapsed_s if elapsed_s > 0 else 0.0
        eta_s = (self._total - self._done) / rate if rate > 0 else None
        if self._as_json:
            values = {"phase": self._phase, "done": self._done, "total": self._total, "unit": self._unit}
            rates = {"rate_per_s": round(rate, 3), "eta_s": None if eta_s is None else round(eta_s, 1)}
            line = json.dumps(values | rates)
        else:
            line = f"{self._phase}: {self._done}/{self._total} {self._unit}"
            if eta_s is not None:
                line += f", {rate:.1f}/s, {eta_s:.0f} s left"
        print(line, file=self._stream, flush=True)
