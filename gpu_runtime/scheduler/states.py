"""States of a training job, and which may follow which."""

from enum import StrEnum


class Purpose(StrEnum):
    """What the training service does with the partition."""

    FIT = "fit"  # statistics the head needs before its first step, e.g. a PCA
    TRAIN = "train"  # one optimizer step: one applied update, one policy version
    EVALUATE = "evaluate"  # held-out error; changes no weights


class TrainingJobState(StrEnum):
    """Where a training job is between reserve and its end."""

    RESERVED = "reserved"  # admitted; nothing produced yet
    PRODUCING = "producing"  # samples are being read or rolled out
    COMPUTING_LOGPROB = "computing_logprob"  # behaviour log-probabilities are being added
    COMPUTING_ADVANTAGE = "computing_advantage"  # advantages are being added
    READY = "ready"  # complete; waits for its turn
    LEASED = "leased"  # handed to one worker until the lease expires
    COMPLETED = "completed"  # consumed, once
    FAILED = "failed"  # could not be produced or consumed
    DROPPED_STALE = "dropped_stale"  # too old when its turn came
    EXPIRED = "expired"  # its workers went silent too often
    CANCELLED = "cancelled"  # its job was cancelled, or an earlier step failed


IN_PRODUCTION = (
    TrainingJobState.RESERVED,
    TrainingJobState.PRODUCING,
    TrainingJobState.COMPUTING_LOGPROB,
    TrainingJobState.COMPUTING_ADVANTAGE,
)
"""In the order a partition goes through them; stages a workflow does not need are skipped."""

TERMINAL = frozenset(
    {
        TrainingJobState.COMPLETED,
        TrainingJobState.FAILED,
        TrainingJobState.DROPPED_STALE,
        TrainingJobState.EXPIRED,
        TrainingJobState.CANCELLED,
    }
)

_S = TrainingJobState
_ENDS_UNREAD = frozenset({_S.FAILED, _S.CANCELLED})

TRANSITIONS: dict[TrainingJobState, frozenset[TrainingJobState]] = {
    _S.RESERVED: frozenset({_S.PRODUCING, _S.COMPUTING_LOGPROB, _S.COMPUTING_ADVANTAGE, _S.READY}) | _ENDS_UNREAD,
    _S.PRODUCING: frozenset({_S.COMPUTING_LOGPROB, _S.COMPUTING_ADVANTAGE, _S.READY}) | _ENDS_UNREAD,
    _S.COMPUTING_LOGPROB: frozenset({_S.COMPUTING_ADVANTAGE, _S.READY}) | _ENDS_UNREAD,
    _S.COMPUTING_ADVANTAGE: frozenset({_S.READY}) | _ENDS_UNREAD,
    _S.READY: frozenset({_S.LEASED, _S.DROPPED_STALE, _S.COMPLETED}) | _ENDS_UNREAD,
    _S.LEASED: TERMINAL - {_S.DROPPED_STALE} | {_S.READY},
    **{state: frozenset() for state in TERMINAL},
}
"""The one table; READY -> COMPLETED happens only at reload, for what the weights already contain."""
