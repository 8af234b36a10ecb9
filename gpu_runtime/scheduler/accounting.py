"""Measured device time, split among its users to the microsecond."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpu_runtime.scheduler.errors import require

K = TypeVar("K", bound=Hashable)


def split_exactly(total_us: int, weights: Mapping[K, int]) -> dict[K, int]:
    """Split a total in proportion to integer weights; the parts sum to it exactly.

    Largest-remainder rounding, ties to the earlier key: each part is within 1 us of its real share.
    Raises InvalidRequest (a ValueError) for a negative number, or when no weight is positive.
    """
    require(total_us >= 0, "total_us", total_us, "zero or more")
    for key, weight in weights.items():
        require(weight >= 0, f"weights[{key!r}]", weight, "zero or more")
    whole = sum(weights.values())
    require(whole > 0, "weights", dict(weights), "at least one above zero")
    parts = {key: total_us * weight // whole for key, weight in weights.items()}
    left = total_us - sum(parts.values())
    by_remainder = sorted(weights, key=lambda key: -(total_us * weights[key] % whole))
    for key in by_remainder[:left]:
        parts[key] += 1
    assert sum(parts.values()) == total_us
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep(Generic[K]):
    """One device step: the shared forward, what ran for one of its members alone, and the time nobody asked for.

    Members are partitions of a training step, requests of an inference step.
    """

    busy_us: int  # the whole step, measured once
    shared_us: int  # the grouped frozen forward
    private_us: Mapping[K, int]  # head, backward, optimizer of one member

    def __post_init__(self) -> None:
        for field, value in (("busy_us", self.busy_us), ("shared_us", self.shared_us)):
            require(value >= 0, field, value, "zero or more")
        for member, value in self.private_us.items():
            require(value >= 0, f"private_us[{member!r}]", value, "zero or more")
        require(self.overhead_us >= 0, "busy_us", self.busy_us, "at least shared_us + sum(private_us)")

    @property
    def overhead_us(self) -> int:
        """Time the platform itself used: collation, launch gaps, members that left the group."""
        return self.busy_us - self.shared_us - sum(self.private_us.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution(Generic[K]):
    """Who pays for one step. ``sum(shares.values()) + overhead_us`` is the measured busy time, always."""

    shares: dict[K, int]  # microseconds
    overhead_us: int


def attribute(step: MeasuredStep[K], tokens: Mapping[K, int]) -> Attribution[K]:
    """Charge the shared forward by tokens and private time to its owner; the rest is platform overhead.

    Raises InvalidRequest when private time belongs to somebody who is not in the group.
    """
    strangers = step.private_us.keys() - tokens.keys()
    require(
        not strangers, "private_us", sorted(map(str, strangers)), f"members of the group {sorted(map(str, tokens))}"
    )
    shares = split_exactly(step.shared_us, tokens)
    for member, private_us in step.private_us.items():
        shares[member] += private_us
    assert sum(shares.values()) + step.overhead_us == step.busy_us
    return Attribution(shares=shares, overhead_us=step.overhead_us)
