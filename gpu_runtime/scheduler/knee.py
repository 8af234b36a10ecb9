"""The knee of the throughput curve, measured while working: the smallest batch that is almost as fast per token.

Below it a batch wastes the device, beyond it requests only wait longer. Batches are counted by octave of their
tokens. An octave's speed is that of its fast batches, which are its full ones: most batches of a lightly loaded device
are not, and would make the next octave look better than it is.
"""

from collections import defaultdict, deque
from dataclasses import dataclass

from gpu_runtime.scheduler.errors import require

PERMILLE = 1_000
MEMORY_BATCHES = 32  # of one octave
FAST_PERMILLE = 900  # of an octave's batches are slower than its speed; a few flukes don't count


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeSettings:
    """Bounds in prompt tokens, and how the curve is read."""

    floor_tokens: int = 128
    ceiling_tokens: int = 8_192
    tolerance_permille: int = 50  # tokens per second given up for a shorter wait
    batches_min: int = 3  # of an octave before it counts
    reprobe_batches: int = 64  # the octave above the knee is tried again after so many: noise must not pin it down

    def __post_init__(self) -> None:
        require(self.floor_tokens > 0, "floor_tokens", self.floor_tokens, "above zero")
        require(
            self.ceiling_tokens >= self.floor_tokens, "ceiling_tokens", self.ceiling_tokens, "floor_tokens or more"
        )
        allowed = 0 <= self.tolerance_permille < PERMILLE
        require(allowed, "tolerance_permille", self.tolerance_permille, f"0 to {PERMILLE - 1}")
        require(self.batches_min > 0, "batches_min", self.batches_min, "above zero")
        require(self.reprobe_batches > 0, "reprobe_batches", self.reprobe_batches, "above zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One octave: batches of at most ``tokens`` and more than half of it."""

    tokens: int
    tokens_per_s: float
    batches: int


class Knee:
    """``observe`` every batch, take ``limit_tokens`` as B.

    Looks one octave beyond the knee, because a whole octave always has room for one request more: what is never tried
    can't be found faster. So the limit climbs while climbing pays, and comes down by itself.
    """

    def __init__(self, settings: KneeSettings) -> None:
        self._settings = settings
        self._speeds: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=MEMORY_BATCHES))
        self._seen_at: dict[int, int] = {}  # octave -> number of its last batch
        self._batches = 0

    @property
    def limit_tokens(self) -> int:
        """B for the next batch: the knee; one octave more where that is no slower, or has to be measured.

        Where bigger is no slower, a few requests beyond the knee are better taken along than left for a batch of their
        own, which costs as much as a full one.
        """
        knee = self.knee_tokens
        above = min(2 * knee, self._settings.ceiling_tokens)
        return above if self._must_try(above) or self._is_no_slower(above, knee) else knee

    @property
    def knee_tokens(self) -> int:
        """Upper edge of the first octave within the tolerance of the fastest; the floor until something is known."""
        known = {octave: self._speed(octave) for octave in self._speeds if self._known(octave)}
        if not known:
            return self._settings.floor_tokens
        enough = max(known.values()) * (PERMILLE - self._settings.tolerance_permille) / PERMILLE
        return min(octave for octave, speed in known.items() if speed >= enough)

    @property
    def batch_us(self) -> int | None:
        """What a batch of ``limit_tokens`` probably costs, at the speed of the knee; None until something is known."""
        knee = self.knee_tokens
        return round(self.limit_tokens * 1e6 / self._speed(knee)) if self._known(knee) else None

    def observe(self, tokens: int, busy_us: int) -> None:
        """One batch took so long, measured."""
        require(tokens > 0, "tokens", tokens, "above zero")
        require(busy_us >= 0, "busy_us", busy_us, "zero or more")
        self._batches += 1
        octave = self._octave(tokens)
        self._speeds[octave].append(tokens * 1e6 / max(1, busy_us))
        self._seen_at[octave] = self._batches

    def curve(self) -> tuple[CurvePoint, ...]:
        """What has been measured, for status pages."""
        return tuple(
            CurvePoint(tokens=octave, tokens_per_s=self._speed(octave), batches=len(speeds))
            for octave, speeds in sorted(self._speeds.items())
        )

    def _speed(self, octave: int) -> float:
        """Tokens per second of the octave's fast batches."""
        return self._quantile(octave, FAST_PERMILLE)

    def _is_no_slower(self, above: int, knee: int) -> bool:
        """Even the slow batches of the octave above, which are its full ones where the curve falls, keep up."""
        allowed_permille = PERMILLE - self._settings.tolerance_permille // 2
        slow = self._quantile(above, PERMILLE - FAST_PERMILLE)
        return slow * PERMILLE >= self._speed(knee) * allowed_permille

    def _quantile(self, octave: int, permille: int) -> float:
        speeds = sorted(self._speeds[octave])
        return speeds[len(speeds) * permille // PERMILLE]

    def _known(self, octave: int) -> bool:
        return octave in self._speeds and len(self._speeds[octave]) >= self._settings.batches_min

    def _must_try(self, octave: int) -> bool:
        return not self._known(octave) or self._batches - self._seen_at[octave] >= self._settings.reprobe_batches

    def _octave(self, tokens: int) -> int:
        """Floor times a power of two, at most the ceiling."""
        octave = self._settings.floor_tokens
        while octave < tokens and octave < self._settings.ceiling_tokens:
            octave *= 2
        return min(octave, self._settings.ceiling_tokens)
