"""What the inference service is asked, and what it answers.

Shapes: B observations of one request, H horizon, A action dims, S state dims.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
from torch import Tensor

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.inference.errors import InvalidPredict

SEED_END = 1 << 63

Handle = str
"""Name of one observation's prefix features, see ``feature_handles``."""


class Mode(StrEnum):
    """What the policy does with its randomness."""

    EVAL = "eval"  # the mean, or the ODE from the seed's noise: what evaluation and deployment run
    SAMPLE = "sample"  # exploring actions, the trace their log-probability is recomputed from, and the critic's value
    VALUE = "value"  # the critic alone: an episode's final observation gets no action


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictRequest:
    """B observations of one session at one decision: each gets a chunk, from its own seed."""

    tenant_id: str
    job_id: str  # who pays
    attempt: int
    session_id: str  # requests of one session are answered in order
    slot_id: str
    features: tuple[VLAFeature, ...]
    state_BS: np.ndarray | None = None  # raw units
    seeds: tuple[int, ...] = ()  # one per observation: nothing else decides its noise
    mode: Mode = Mode.EVAL
    progress_B: np.ndarray | None = None  # share of the step limit that has passed, for a critic that is told it
    policy_version: int | Literal["latest"] = "latest"
    keep_features: bool = False  # return handles, for a trainer that won't run the backbone again
    timeout_us: int | None = None  # how long it may wait for its turn
    unbilled: str | None = None  # why it is measured and not billed, e.g. "redone_after_restart"

    def __post_init__(self) -> None:
        if not self.features:
            raise InvalidPredict("features: a request needs at least one observation, got none")
        if len(self.seeds) != len(self.features):
            raise InvalidPredict(f"seeds: {len(self.seeds)} for {len(self.features)} observations, allowed: one each")
        if bad := [seed for seed in self.seeds if not 0 <= seed < SEED_END]:
            raise InvalidPredict(f"seeds: {bad[0]}, allowed: 0 to 2**63 - 1")
        if self.state_BS is not None and self.state_BS.shape[:1] != (len(self.features),):
            raise InvalidPredict(f"state: shape {list(self.state_BS.shape)}, allowed: [{len(self.features)}, S]")
        if self.progress_B is not None and self.progress_B.shape != (len(self.features),):
            raise InvalidPredict(f"progress: shape {list(self.progress_B.shape)}, allowed: [{len(self.features)}]")
        if self.timeout_us is not None and self.timeout_us <= 0:
            raise InvalidPredict(f"timeout_us: {self.timeout_us}, allowed: above zero, or none")
        if self.unbilled is not None and not self.unbilled:
            raise InvalidPredict("unbilled: '', allowed: a reason, or none")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictReply:
    """``queue_us`` from admission to the start of the step, ``compute_us`` of the whole step, ``share_us`` billed."""

    actions_BHA: np.ndarray  # real units, float32; H = 0 in mode value
    policy_version: int
    group_size: int  # requests in the packed forward
    queue_us: int
    compute_us: int
    share_us: int
    handles: tuple[Handle, ...] = ()  # one per observation, if features were to be kept
    trace: Mapping[str, Tensor] | None = None  # [B, ...] each, on the CPU; of a sampled chunk
    value: np.ndarray | None = None  # [B], or [B, C] of a critic per step; not in mode eval
