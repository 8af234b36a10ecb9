"""How old a rollout may be: bounded before it starts and again before it is consumed."""

from dataclasses import dataclass

from gpu_runtime.scheduler.errors import StalenessBound, require


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """The policy version that acted, and how many updates may come before its data is used.

    An update of policy version v may use the data only if ``v - behaviour_version <= max_staleness``.
    """

    behaviour_version: int
    max_staleness: int

    def __post_init__(self) -> None:
        require(self.behaviour_version >= 0, "behaviour_version", self.behaviour_version, "zero or more")
        require(self.max_staleness >= 0, "max_staleness", self.max_staleness, "zero or more")

    def slack(self, policy_version: int) -> int:
        """Updates that may still come first; negative means too old."""
        return self.behaviour_version + self.max_staleness - policy_version


def admit(freshness: Freshness, *, policy_version: int, updates_ahead: int) -> None:
    """Refuse to start a rollout that would be too old when its turn comes.

    ``updates_ahead`` partitions of the job are consumed first, each raising the policy version by one.
    """
    slack = freshness.slack(policy_version + updates_ahead)
    if slack < 0:
        raise StalenessBound(
            f"behaviour version {freshness.behaviour_version} would be {freshness.max_staleness - slack} updates old "
            f"behind {updates_ahead} partitions at policy version {policy_version}; "
            f"allowed: {freshness.max_staleness}"
        )
