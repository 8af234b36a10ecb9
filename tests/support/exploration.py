"""Small policies in reinforcement learning: a head after some imitation, one way to explore, a critic.

Shapes: B samples.
"""

from typing import Any

import torch
from torch import Tensor

from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.protocol.exploration import ActorCriticSpec
from gpu_runtime.protocol.specs import OptimizerSpec
from tests.support.policies import WIDTH, Problem

GAUSSIAN: dict[str, Any] = {"type": "gaussian"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "oft": ("oft", GAUSSIAN),
    "mlp": ("mlp", GAUSSIAN),
    "sde": ("gr00t", {"type": "flow_sde"}),
    "sde-joint-mean": ("gr00t", {"type": "flow_sde", "steps": "joint_mean"}),
    "sde-joint-sum": ("gr00t", {"type": "flow_sde", "steps": "joint_sum"}),
    "noise": ("gr00t", {"type": "flow_noise"}),
    "noise-joint-mean": ("gr00t", {"type": "flow_noise", "steps": "joint_mean"}),
}
FLOWS = [name for name, (head, _) in CASES.items() if head == "gr00t"]
DROPOUT: dict[str, dict[str, Any]] = {
    "gr00t": {"dropout": 0.5},
    "mlp": {"dropout": 0.5, "input_noise": 0.5},
    "oft": {},
}


def rl_slot(
    problem: Problem,
    case: str,
    *,
    executed: int = 3,
    head: dict[str, Any] | None = None,
    exploration: dict[str, Any] | None = None,
    optimizer: dict[str, Any] | None = None,
    **options: Any,
) -> RlSlot:
    """A slot whose head had enough imitation for its blocks not to be the identity any more.

    ``head`` and ``exploration`` override the case's; ``options`` go into the ActorCriticSpec.
    """
    kind, settings = CASES[case]
    sft = problem.slot(kind, **DROPOUT[kind] | (head or {}))
    for i in range(8):
        sft.train_step(*problem.batch(8), f"imitation-{i}")
    wanted = {"exploration": settings | (exploration or {}), "executed_steps": executed, "value": {"hidden": (16, 8)}}
    spec = ActorCriticSpec.model_validate(wanted | options)
    settings = {"lr": 1e-3, "warmup_steps": 0, "schedule": "constant"} | (optimizer or {})
    slot = RlSlot(sft.policy, spec, optimizer=OptimizerSpec.model_validate(settings), total_steps=20, seed=5)
    slot.fit(problem.batch(64)[0])
    return slot


def generators(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def ragged(lengths: list[int], seed: int = 0) -> list[dict[str, Tensor]]:
    """Prompts of different lengths at the tap ``layer:-1``."""
    generator = torch.Generator().manual_seed(seed)
    return [{"layer:-1": torch.randn(length, WIDTH, generator=generator)} for length in lengths]


def rollout(case: str, samples: int = 9, **options):
    """A slot, features, state in model space, actions in model space and their trace."""
    problem = Problem()
    slot = rl_slot(problem, case, **options)
    features, batch = problem.batch(samples)
    state = slot.policy.model_state(batch.state_BS)
    actions, trace = slot.models.actor.act_with_trace(features, state, generators(*range(samples)))
    return slot, features, state, actions, trace
