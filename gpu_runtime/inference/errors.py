"""Why a predict request gets no actions. The docstring is the default message; a refusal touches no other request."""

from typing import ClassVar


class InferenceError(Exception):
    """The inference service refused."""

    code: ClassVar[str] = "inference_error"  # machine-readable, stable

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class UnknownSlot(InferenceError, LookupError):
    """The tenant has no policy slot of this name."""

    code = "unknown_slot"


class SlotExists(InferenceError, ValueError):
    """The tenant has a policy slot of this name already."""

    code = "slot_exists"


class UnknownVersion(InferenceError, LookupError):
    """This policy version is not kept: it was never published, or it is superseded and nobody had pinned it."""

    code = "unknown_policy_version"


class VersionOrder(InferenceError, ValueError):
    """Policy versions of a slot only rise."""

    code = "policy_version_order"


class PinReleased(InferenceError, RuntimeError):
    """The pin was released: the policy behind it may be gone."""

    code = "pin_released"


class InvalidPredict(InferenceError, ValueError):
    """A field of the request has a value that is not allowed."""

    code = "invalid_predict_request"


class SamplingUnsupported(InferenceError, ValueError):
    """The policy was published without an exploration: it can be evaluated, not sampled from."""

    code = "sampling_unsupported"


class DeadlineMissed(InferenceError, TimeoutError):
    """The request's deadline came before its turn."""

    code = "deadline_missed"


class NonFiniteOutput(InferenceError, ArithmeticError):
    """The policy's actions or its value are NaN or infinite; they reach no robot and no trainer."""

    code = "non_finite_output"


class PredictFailed(InferenceError, RuntimeError):
    """The request's own part of the device step failed."""

    code = "predict_failed"

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason  # code of the cause, e.g. "batch_mismatch", "out_of_memory"


class ServiceStopped(InferenceError, RuntimeError):
    """The inference service is stopping and takes no requests."""

    code = "inference_stopped"
