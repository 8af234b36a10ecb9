"""What a specification alone says of the units a job will use. Pure: no history, no prices."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpu_runtime.protocol.environment_spec import EnvironmentSpec
from gpu_runtime.protocol.job_specs import JobSpec
from gpu_runtime.protocol.policy_specs import EvaluationJobSpec, RlJobSpec, RolloutJobSpec
from gpu_runtime.protocol.specs import SftJobSpec
from tenants.billing.models import Meter

_PLAYED = (Meter.PREDICT_CHUNKS, Meter.PREDICT_COMPUTE_US, Meter.ENV_STEPS, Meter.ENV_COMPUTE_US)
_TRAINED = (Meter.TRAIN_SAMPLES, Meter.TRAIN_COMPUTE_US)
METERS_OF_KIND: dict[str, tuple[Meter, ...]] = {
    "sft": _TRAINED,
    "rl": (*_TRAINED, *_PLAYED),
    "evaluation": _PLAYED,
    "rollout": _PLAYED,
}
EXACT, AT_MOST = "exact", "at most: planned episodes to their step limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Units of one meter: never fewer than ``low``, never more than ``high``."""

    low: int
    high: int

    @property
    def basis(self) -> str:
        return EXACT if self.low == self.high else AT_MOST


def planned_units(spec: JobSpec, *, horizon: int | None) -> dict[Meter, Planned]:
    """Meters of which the specification gives a number or a bound; ``horizon``: chunk length of the policy."""
    if isinstance(spec, SftJobSpec):
        samples = spec.training.steps * spec.training.batch_size
        return {Meter.TRAIN_SAMPLES: Planned(low=samples, high=samples)}
    if isinstance(spec, RlJobSpec):
        return _of_rl(spec)
    plays = [(task, spec.episodes) for task in spec.environments] if isinstance(spec, EvaluationJobSpec) else []
    if isinstance(spec, RolloutJobSpec):
        plays = [(spec.environment, spec.attempts)]
    return _of_episodes(plays, executed=spec.executed_steps or horizon)


def work_units(spec: JobSpec) -> int:
    """How much work it is, in the unit by which finished jobs of its kind are compared: samples, else episodes."""
    if isinstance(spec, SftJobSpec):
        return spec.training.steps * spec.training.batch_size
    if isinstance(spec, RlJobSpec):
        return spec.training.iterations * spec.collection.episodes
    return spec.total_steps


def work_done(kind: str, step: int, spec: dict[str, Any]) -> int:
    """The same of a finished job that got to ``step``; ``spec`` as it is stored, maybe by an earlier release."""
    if kind == "sft":
        return step * int(spec.get("training", {}).get("batch_size", 0))
    return step * int(spec.get("collection", {}).get("episodes", 0)) if kind == "rl" else step


def _of_episodes(plays: list[tuple[EnvironmentSpec, int]], *, executed: int | None) -> dict[Meter, Planned]:
    return dict(_bounds(plays, executed=executed, more_chunks=0))


def _of_rl(spec: RlJobSpec) -> dict[Meter, Planned]:
    """A cut-off episode may ask for one value more. No batch is begun after ``max_env_steps``; what is under way
    then is played to its end."""
    episodes = spec.training.iterations * spec.collection.episodes
    limit, most = spec.environment.max_steps, spec.training.max_env_steps
    if limit is not None and most is not None:
        at_once = (1 + spec.collection.max_staleness) * spec.collection.episodes
        episodes = min(episodes, -(-most // limit) + at_once)
    bounds = dict(_bounds([(spec.environment, episodes)], executed=spec.executed_steps, more_chunks=1))
    if Meter.PREDICT_CHUNKS in bounds:
        bounds[Meter.TRAIN_SAMPLES] = Planned(low=0, high=bounds[Meter.PREDICT_CHUNKS].high * spec.training.epochs)
    return bounds


def _bounds(
    plays: list[tuple[EnvironmentSpec, int]], *, executed: int | None, more_chunks: int
) -> Iterator[tuple[Meter, Planned]]:
    """Nothing unless every task has its limit in the specification: the simulators' own are not known here."""
    limits = [(task.max_steps, episodes) for task, episodes in plays]
    if any(limit is None for limit, _ in limits):
        return
    steps = sum((limit or 0) * episodes for limit, episodes in limits)
    yield Meter.ENV_STEPS, Planned(low=0, high=steps)
    if executed is not None:
        chunks = sum((-(-(limit or 0) // executed) + more_chunks) * episodes for limit, episodes in limits)
        yield Meter.PREDICT_CHUNKS, Planned(low=0, high=chunks)
