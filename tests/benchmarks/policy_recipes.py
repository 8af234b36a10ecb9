"""Settings that make policies work on a small machine: demonstrations, head, training and evaluation of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MLP = {"type": "mlp", "width": 256, "blocks": 2, "dropout": 0.1, "input_noise": 0.1}
WORDS = {"tap": "layer:0", "pca_dims": 1}  # the instruction never varies: the state alone decides
PIXELS = {"tap": "vision", "pca_dims": 64, "pca_frames": 1024}
ADAMW = {"lr": 1e-3, "warmup_steps": 50, "schedule": "cosine", "min_lr_ratio": 0.02, "weight_decay": 1e-2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One policy by imitation. ``least``: the success rate it must reach, in [0, 1]; ``most``: of a weak start."""

    title: str
    environment: str
    state: str
    episodes: int
    cameras: str | None  # as ``record --cameras`` takes them
    head: Mapping[str, Any]
    training: Mapping[str, Any]
    max_steps: int
    executed_steps: int
    optimizer: Mapping[str, Any]
    image_size: int = 64
    least: float = 0.0
    most: float = 1.0

    @property
    def recording(self) -> str:
        """Folder name: recipes on the same demonstrations share them."""
        seen = self.cameras or f"cameras{self.image_size}"
        return f"{self.environment}-{self.state}-{seen}-{self.episodes}".lower()


RECIPES = {
    "push_state": Recipe(
        title="PushCube, SFT on 9 chosen numbers of the true state",
        environment="PushCube-v1",
        state="privileged",
        episodes=200,
        cameras="none",
        head=MLP | WORDS | {"horizon": 4},
        training={"steps": 1500, "batch_size": 256},
        optimizer=ADAMW,
        max_steps=50,
        executed_steps=4,
        least=0.9,
    ),
    "push_camera": Recipe(
        title="PushCube, SFT on a 64 px camera and proprioception, frozen random base",
        environment="PushCube-v1",
        state="proprioception",
        episodes=200,
        cameras=None,
        head=MLP | PIXELS | {"horizon": 4},
        training={"steps": 600, "batch_size": 256},
        optimizer=ADAMW,
        max_steps=50,
        executed_steps=4,
        least=0.55,
    ),
    "pick_state": Recipe(
        title="PickCube, SFT on 15 chosen numbers of the true state",
        environment="PickCube-v1",
        state="privileged",
        episodes=200,
        cameras="none",
        head=MLP | WORDS | {"horizon": 4},
        training={"steps": 800, "batch_size": 256},
        optimizer=ADAMW,
        max_steps=70,
        executed_steps=2,
        least=0.8,
    ),
    "push_weak": Recipe(
        title="PushCube, the weak start of RL: SFT on 4 demonstrations",
        environment="PushCube-v1",
        state="privileged",
        episodes=4,
        cameras="none",
        head=MLP | WORDS | {"horizon": 4},
        training={"steps": 100, "batch_size": 128, "holdout_fraction": 0.0},
        optimizer=ADAMW,
        max_steps=50,
        executed_steps=4,
        most=0.3,
    ),
}
