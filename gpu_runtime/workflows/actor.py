"""Asking a policy for decisions: one request for all environments that wait for one.

Shapes: B observations of one request, S state dimensions.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.inference.messages import Mode, PredictReply, PredictRequest
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.scheduler.errors import InferenceQueueFull

_QUEUE_FULL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """Whose policy slot decides how, and who pays. ``unbilled``: why nobody does."""

    tenant_id: str
    job_id: str
    attempt: int
    slot_id: str
    version: int | Literal["latest"] = "latest"
    mode: Mode = Mode.EVAL
    keep_features: bool = False
    told_progress: bool = False  # the critic wants to know how much of the step limit has passed
    unbilled: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Observations of environments that wait; ``passed_B``: the share of each one's step limit that is over."""

    features: Sequence[VLAFeature]
    states: Sequence[np.ndarray | None]  # [S] each, raw units
    seeds: Sequence[int]
    passed_B: np.ndarray | None


@dataclass(slots=True)
class Debt:
    """``chunks`` that were billed, whose episodes the platform lost: as many of the next ones are at no price."""

    chunks: int = 0


@dataclass(slots=True, kw_only=True)
class PredictStatistics:
    """Of answered requests: latencies in seconds as the workflow felt them, and group sizes."""

    latency_s: list[float] = field(default_factory=list)
    group_sizes: list[int] = field(default_factory=list)

    def metrics(self) -> dict[str, float]:
        """Nothing where nothing was asked."""
        if not self.latency_s:
            return {}
        return {
            "service/predict_p95_ms": float(np.percentile(self.latency_s, 95)) * 1e3,
            "service/predict_group_size": float(np.mean(self.group_sizes)),
        }


@dataclass(slots=True, kw_only=True)
class Actor:
    """One session of the inference queue. What is ``owed`` may be shared by several: it is one payer's."""

    service: InferenceService
    acting: Acting
    session_id: str
    owed: Debt = field(default_factory=Debt)
    owed_reason: str = "environment_lost"
    statistics: PredictStatistics = field(default_factory=PredictStatistics)

    async def decide(self, asked: Asked) -> PredictReply:
        """One chunk each. Raises InferenceError, SchedulerError."""
        return await self._predict(asked, self.acting.mode, keep_features=self.acting.keep_features)

    async def values(self, asked: Asked) -> np.ndarray:
        """The critic's word on observations that nobody acts on any more, [B]."""
        reply = await self._predict(asked, Mode.VALUE, keep_features=False)
        assert reply.value is not None, "mode value has one"
        return reply.value

    async def _predict(self, asked: Asked, mode: Mode, *, keep_features: bool) -> PredictReply:
        """A full queue is nobody's fault: ask again until there is room."""
        acting, unbilled = self.acting, self.acting.unbilled
        if unbilled is None and self.owed.chunks > 0:
            unbilled = self.owed_reason
            self.owed.chunks -= len(asked.features)
        told = acting.told_progress and mode is not Mode.EVAL
        states = [state for state in asked.states if state is not None]
        request = PredictRequest(
            tenant_id=acting.tenant_id,
            job_id=acting.job_id,
            attempt=acting.attempt,
            session_id=self.session_id,
            slot_id=acting.slot_id,
            features=tuple(asked.features),
            state_BS=np.stack(states) if states else None,
            seeds=tuple(asked.seeds),
            mode=mode,
            progress_B=asked.passed_B if told else None,
            policy_version=acting.version,
            keep_features=keep_features,
            unbilled=unbilled,
        )
        started_s = asyncio.get_running_loop().time()
        while True:
            try:
                reply = await self.service.predict(request)
            except InferenceQueueFull:
                await asyncio.sleep(_QUEUE_FULL_S)
                continue
            self.statistics.latency_s.append(asyncio.get_running_loop().time() - started_s)
            self.statistics.group_sizes.append(reply.group_size)
            return reply
