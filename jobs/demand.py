"""What a job takes of the limited resources while it is started."""

from gpu_runtime.protocol.job_specs import JobSpec
from gpu_runtime.protocol.policy_specs import RlJobSpec
from gpu_runtime.protocol.specs import SftJobSpec

TRAINING_KINDS = ("sft", "rl")
"""Kinds that hold a slot: a head and its optimizer on a resident base."""


def seats_asked(spec: JobSpec) -> int:
    """Simulated environments a job asks for at once; none for one that learns from demonstrations."""
    if isinstance(spec, SftJobSpec):
        return 0
    return spec.collection.seats if isinstance(spec, RlJobSpec) else spec.parallel


def seats_pointer(kind: str) -> str:
    """Where in a specification of this kind the seats are asked for, as a JSON pointer."""
    return "/collection/seats" if kind == "rl" else "/parallel"
