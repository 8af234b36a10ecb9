"""How the inference service batches, what it takes in, and how it measures its own batch limit."""

from collections import defaultdict
from dataclasses import dataclass, field

from gpu_runtime.scheduler.inference_queue import WINDOW_BATCHES, InferenceLimits, InferenceQueue
from gpu_runtime.scheduler.knee import Knee, KneeSettings

_FIRST_WINDOW_US = 100_000  # D until a batch was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSettings:
    """T = ``wait_us`` and B = ``batch_tokens`` remain settings; the continuous rule is the default."""

    wait_us: int = 0
    batch_tokens: int | None = None  # None: the knee, as measured
    window_us: int | None = None  # D; None: the cost of two full batches, as measured (WINDOW_BATCHES)
    limits: InferenceLimits = field(default_factory=InferenceLimits)
    knee: KneeSettings = field(default_factory=KneeSettings)
    write_every_us: int = 500_000
    unwritten_steps_max: int = 512  # no further step while the journal is that far behind


class MeasuredLimits:
    """Keeps B and D of a queue at what was measured, unless they are set. Every base's curve bends elsewhere."""

    def __init__(self, settings: InferenceSettings) -> None:
        self._settings = settings
        self._knees: defaultdict[str, Knee] = defaultdict(lambda: Knee(settings.knee))

    def make_queue(self) -> InferenceQueue:
        """A queue with what can be said before anything was measured."""
        settings = self._settings
        return InferenceQueue(
            settings.limits,
            batch_limit_tokens=settings.batch_tokens or Knee(settings.knee).limit_tokens,
            window_us=_FIRST_WINDOW_US if settings.window_us is None else settings.window_us,
            wait_us=settings.wait_us,
        )

    def knee(self, group_key: str) -> Knee:
        """The throughput curve of one base."""
        return self._knees[group_key]

    def observe(self, queue: InferenceQueue, group_key: str, *, tokens: int, busy_us: int) -> None:
        """One batch of one base took so long."""
        knee = self._knees[group_key]
        knee.observe(tokens, busy_us)
        if self._settings.batch_tokens is None:
            queue.set_batch_limit(group_key, knee.limit_tokens)
        costs_us = [batch_us for other in self._knees.values() if (batch_us := other.batch_us) is not None]
        if self._settings.window_us is None and costs_us:
            queue.set_window(WINDOW_BATCHES * max(costs_us))
