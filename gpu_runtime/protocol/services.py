"""The services of a runtime, and which of them each kind of job needs."""

from collections.abc import Mapping
from enum import StrEnum


class Service(StrEnum):
    """What can be drained, by its name in ``ServiceStatus``."""

    TRAINING = "training"  # leases groups of batches, makes steps of them
    INFERENCE = "inference"  # answers with actions of published policies
    ENVIRONMENT = "environment"  # simulators in processes of their own


_ACTING = frozenset({Service.INFERENCE, Service.ENVIRONMENT})
SERVICES_OF_KIND: Mapping[str, frozenset[Service]] = {
    "sft": frozenset({Service.TRAINING}),
    "rl": frozenset(Service),
    "evaluation": _ACTING,
    "rollout": _ACTING,
}
