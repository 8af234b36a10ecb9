"""A small synthetic imitation problem: features with a huge constant part, actions that depend on what moves in them.

Shapes: B samples, L tokens, D feature width, H horizon, A action dims, S state dims.
"""

from typing import Any

import numpy as np
import torch

from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.schema import Camera, DatasetSchema, DatasetStatistics, VectorFeature, VectorStatistics
from gpu_runtime.protocol.specs import SftJobSpec

TOKENS, WIDTH, LATENT = 6, 16, 3
ACTION_NAMES = ("x", "y", "gripper")
STATE_NAMES = ("joint_0", "joint_1")
SMALL_HEADS: dict[str, dict[str, Any]] = {
    "gr00t": {
        "type": "gr00t",
        "horizon": 4,
        "tap": "vision",
        "width": 32,
        "layers": 2,
        "heads": 2,
        "output_width": 32,
        "future_tokens": 2,
        "dropout": 0.1,
        "noise_draws": 2,
        "fit_frames": 64,
    },
    "mlp": {"type": "mlp", "horizon": 4, "width": 32, "pca_dims": 8, "pca_frames": 64},
    "oft": {"type": "oft", "horizon": 4, "blocks": 1, "fit_frames": 64},
}


def tap_width(tap: str) -> int:
    """Every tap of the synthetic backbone is equally wide."""
    return WIDTH


def make_spec(head: str, *, steps: int = 60, **overrides: Any) -> SftJobSpec:
    """A job for one of SMALL_HEADS; ``overrides`` go into the head."""
    return SftJobSpec.model_validate(
        {
            "kind": "sft",
            "name": f"small {head}",
            "base_model": "tiny-qwen3-vl",
            "head": SMALL_HEADS[head] | overrides,
            "dataset": {"id": "synthetic"},
            "training": {"steps": steps, "batch_size": 16, "seed": 3},
            "optimizer": {"lr": 3e-3, "warmup_steps": 5},
        }
    )


class Problem:
    """Latent z per frame; features = common + z through a random map; actions a fixed function of z and state."""

    def __init__(self, seed: int = 0, *, tokens: int = TOKENS) -> None:
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.common_LD = 10 * rng.normal(size=(tokens, WIDTH))
        self.map_ZLD = rng.normal(size=(LATENT, tokens, WIDTH)) / 2
        self.to_action_ZA = rng.normal(size=(LATENT, 3))
        states, actions = self._frames(2000)[1:]
        self.statistics = DatasetStatistics(state=describe(states), action=describe(actions[:, 0]), frames=2000)
        self.schema = DatasetSchema(
            cameras=(Camera(key="observation.images.top", height=64, width=64),),
            state=VectorFeature(key="observation.state", names=STATE_NAMES),
            action=VectorFeature(key="action", names=ACTION_NAMES),
            control_hz=10,
        )

    def batch(self, samples: int = 16) -> tuple[list[dict[str, torch.Tensor]], SampleBatch]:
        """Fresh frames: features by tap (``query`` has one row per step) and the batch; a few chunks end early."""
        z_BZ, state_BS, actions_BHA = self._frames(samples)
        features_BLD = torch.tensor(self.common_LD + np.einsum("bz,zld->bld", z_BZ, self.map_ZLD), dtype=torch.float32)
        mask_BH = np.ones((samples, 4), dtype=bool)
        mask_BH[::5, 3] = False
        batch = SampleBatch(
            images=(),
            instructions=("push",) * samples,
            state_BS=state_BS,
            actions_BHA=actions_BHA,
            mask_BH=mask_BH,
        )
        return [{"vision": f, "layer:-1": f, "query": f[:4]} for f in features_BLD], batch

    def slot(self, head: str, *, steps: int = 60, fitted: bool = True, device: str = "cpu", **overrides: Any) -> Slot:
        """A slot on this problem, fitted on its own frames unless told otherwise."""
        spec = make_spec(head, steps=steps, **overrides)
        slot = Slot.create(
            spec=spec, schema=self.schema, statistics=self.statistics, tap_width=tap_width, device=device
        )
        if fitted and slot.needs_fit:
            features, batch = self.batch(slot.fit_frames)
            slot.fit([{tap: value.to(device) for tap, value in f.items()} for f in features], batch)
        return slot

    def _frames(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        z_BZ = self.rng.normal(size=(count, LATENT))
        state_BS = self.rng.normal(size=(count, 2)).astype(np.float32) * [0.5, 3] + [1, -2]
        direction_BA = np.tanh(z_BZ @ self.to_action_ZA + 0.3 * state_BS[:, :1])
        steps_H = np.linspace(1, 0.7, 4)
        actions_BHA = direction_BA[:, None] * steps_H[None, :, None] * [0.1, 0.2, 1.0]
        return z_BZ, state_BS.astype(np.float32), actions_BHA.astype(np.float32)


def describe(values_ND: np.ndarray) -> VectorStatistics:
    """Statistics of the reference pipeline's kind."""
    rows = {
        "mean": values_ND.mean(0),
        "std": values_ND.std(0),
        "min": values_ND.min(0),
        "max": values_ND.max(0),
        "q01": np.quantile(values_ND, 0.01, axis=0),
        "q99": np.quantile(values_ND, 0.99, axis=0),
    }
    return VectorStatistics(**{name: tuple(map(float, row)) for name, row in rows.items()})
