"""Made-up experience for reinforcement-learning slots: played by the slot's own policy, paid at random.

Shapes: B samples, N chunks, C executed actions per chunk, A action dims.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gpu_runtime.models.heads.base import Features
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.protocol.policy_specs import RlJobSpec
from gpu_runtime.training.rl.batch import RlBatch
from tests.support.exploration import CASES, DROPOUT
from tests.support.policies import Problem

ALGORITHMS: dict[str, dict[str, Any]] = {
    "ppo": {"type": "ppo", "value": {"hidden": [16, 8]}},
    "decoupled_ppo": {"type": "decoupled_ppo", "value": {"hidden": [16, 8]}},
    "grpo": {"type": "grpo", "group_size": 2},
    "reinforce": {"type": "reinforce"},
}


def rl_job(algorithm: str = "ppo", *, case: str = "mlp", executed: int = 3, **changes: Any) -> RlJobSpec:
    """A small job; ``algorithm_options``, ``training``, ``collection`` and ``optimizer`` override fields of theirs."""
    once = algorithm == "reinforce"
    wanted: dict[str, Any] = {
        "kind": "rl",
        "name": f"small {algorithm}",
        "policy": {"artifact": "start"},
        "environment": {"id": "joynexus/Reach-v0"},
        "algorithm": ALGORITHMS[algorithm] | changes.pop("algorithm_options", {}),
        "exploration": CASES[case][1] | changes.pop("exploration", {}),
        "executed_steps": executed,
        "collection": {"episodes": 4, "max_staleness": 0 if once else 1} | changes.pop("collection", {}),
        "training": {"iterations": 9, "epochs": 1 if once else 2, "minibatch_size": 8} | changes.pop("training", {}),
        "optimizer": {"lr": 1e-3, "schedule": "constant", "warmup_steps": 0} | changes.pop("optimizer", {}),
    }
    return RlJobSpec.model_validate(wanted | changes)


def job_slot(problem: Problem, spec: RlJobSpec, *, case: str = "mlp") -> RlSlot:
    """A slot of this job, from a policy that had a little imitation; its critic has seen nothing yet."""
    kind, _ = CASES[case]
    sft = problem.slot(kind, **DROPOUT[kind])
    for at in range(4):
        sft.train_step(*problem.batch(8), f"imitation-{at}")
    return RlSlot.create(sft.policy, spec)


def experience(slot: RlSlot, problem: Problem, samples: int = 16, *, seed: int = 0) -> tuple[list[Features], RlBatch]:
    """Chunks that the slot plays now, credited at random; a few were cut short by the end of their episode."""
    features, frames = problem.batch(samples)
    _, trace = slot.models.act_with_trace(features, frames.state_BS, seeds=range(samples * seed, samples * (seed + 1)))
    numbers = np.random.default_rng(seed)
    mask_NC = np.ones((samples, slot.models.actor.executed), bool)
    mask_NC[::5, -1] = False
    value_N = None
    if slot.models.critic is not None:
        with torch.no_grad():
            value_N = slot.models.value(features, frames.state_BS).numpy()
    batch = RlBatch(
        instructions=("push",) * samples,
        handles=("",) * samples,
        state_NS=frames.state_BS,
        trace={name: value.numpy() for name, value in trace.items()},
        value_N=value_N,
        advantage_N=numbers.normal(size=samples).astype(np.float32),
        returns_N=None if value_N is None else numbers.normal(size=samples).astype(np.float32),
        mask_NC=mask_NC,
        version_N=np.full(samples, slot.policy_version, np.int64),
        episode_N=np.arange(samples, dtype=np.int64) // 4,
    )
    return features, batch


def log_prob(slot: RlSlot, features: Sequence[Features], batch: RlBatch) -> torch.Tensor:
    """Of every chunk under the weights as they are, summed over its elements, [N]."""
    trace = {name: torch.from_numpy(array) for name, array in batch.trace.items()}
    with torch.no_grad():
        return slot.models.score(features, batch.state_NS, trace).log_prob_BCA.sum(dim=(1, 2))
