"""One inference step: one packed forward for the group, then each request's own policy, all of it measured."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from gpu_runtime.inference.errors import InferenceError, PredictFailed
from gpu_runtime.inference.feature_handles import FeatureHandles
from gpu_runtime.inference.messages import Handle, PredictRequest
from gpu_runtime.inference.served_policy import Decision, ServedPolicy
from gpu_runtime.models.heads.base import Features
from gpu_runtime.models.lora.encode import encode_with
from gpu_runtime.protocol.ids import RequestId
from gpu_runtime.scheduler.accounting import MeasuredStep


class Clock(Protocol):
    """Reads the time after everything queued on the device has finished."""

    def now_ns(self) -> int: ...


@dataclass(slots=True, kw_only=True, eq=False)
class PredictMember:
    """One request's part of a step: what goes in, and what came of it."""

    request_id: RequestId
    request: PredictRequest
    policy: ServedPolicy
    tokens: int
    shared_tokens: int = 0  # its weight in the shared forward; 0 when it had no part in it
    private_ns: int = 0
    decision: Decision | None = None
    handles: tuple[Handle, ...] = field(default=())
    failure: InferenceError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictOutcome:
    """``measured`` in microseconds: the whole step, the shared forward, each request's own part."""

    started_at_us: int  # Unix time
    measured: MeasuredStep[RequestId]
    members: tuple[PredictMember, ...]


class PredictStep:
    """Runs groups, one at a time, in the compute thread. A fault of one request stays with that request."""

    def __init__(self, clock: Clock, handles: FeatureHandles) -> None:
        self._clock = clock
        self._handles = handles

    def run(self, members: Sequence[PredictMember]) -> PredictOutcome:
        """Encode together, act apart. Raises nothing for a request's fault."""
        started_at_us, begin_ns = time.time_ns() // 1000, self._clock.now_ns()
        features, shared_ns = self._encode(members)
        for member in members:
            if member.failure is None:
                self._guarded(member, features)
        busy_ns = self._clock.now_ns() - begin_ns
        measured = MeasuredStep(
            busy_us=busy_ns // 1000,
            shared_us=shared_ns // 1000,
            private_us={member.request_id: member.private_ns // 1000 for member in members},
        )
        return PredictOutcome(started_at_us=started_at_us, measured=measured, members=tuple(members))

    def _encode(self, members: Sequence[PredictMember]) -> tuple[dict[RequestId, list[Features]], int]:
        """Features by request, and the nanoseconds of the shared forward.

        When the group's forward fails, each request is encoded alone: who fails alone is the culprit, the others get
        what they would have had without it. That time is their own; the failed try is overhead.
        """
        begin_ns = self._clock.now_ns()
        try:
            features = _forward(members)
            shared_ns = self._clock.now_ns() - begin_ns
        except Exception as error:
            _free_memory()
            if len(members) == 1:
                members[0].failure = explain(error)
                return {}, 0
        else:
            for member in members:
                member.shared_tokens = member.tokens
            return features, shared_ns
        features = {}
        for member in members:
            begin_ns = self._clock.now_ns()
            try:
                features |= _forward([member])
            except Exception as error:
                _free_memory()
                member.failure = explain(error)
            member.private_ns += self._clock.now_ns() - begin_ns
        return features, 0

    def _guarded(self, member: PredictMember, features: dict[RequestId, list[Features]]) -> None:
        begin_ns = self._clock.now_ns()
        try:
            self._act(member, features.pop(member.request_id))
        except Exception as error:
            _free_memory()
            member.decision, member.failure = None, explain(error)
        member.private_ns += self._clock.now_ns() - begin_ns

    def _act(self, member: PredictMember, features: list[Features]) -> None:
        request = member.request
        if request.keep_features:
            member.handles = tuple(
                self._handles.put(request.tenant_id, request.slot_id, member.policy, feature, rows)
                for feature, rows in zip(request.features, features, strict=True)
            )
        member.decision = member.policy.act(features, request)


def explain(error: Exception) -> InferenceError:
    """A refusal with a machine-readable reason for one request's fault."""
    if isinstance(error, InferenceError):
        return error
    if isinstance(error, torch.OutOfMemoryError):
        return PredictFailed("the request does not fit into device memory", reason="out_of_memory")
    reason = getattr(error, "code", None)
    if isinstance(reason, str):
        return PredictFailed(str(error), reason=reason)
    return PredictFailed(f"{type(error).__name__}: {error}", reason="step_failed")


def _forward(members: Sequence[PredictMember]) -> dict[RequestId, list[Features]]:
    inputs = [
        replace(feature, scope=member.request.tenant_id) for member in members for feature in member.request.features
    ]
    taps = [member.policy.taps for member in members for _ in member.request.features]
    adapters = [member.policy.lora for member in members for _ in member.request.features]
    encoded = iter(encode_with(members[0].policy.backbone, inputs, taps, adapters))
    return {member.request_id: [next(encoded) for _ in member.request.features] for member in members}


def _free_memory() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
