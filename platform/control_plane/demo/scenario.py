"""Who takes part in the demo and what each asks for."""

from dataclasses import dataclass
from typing import Any

BASE_MODEL = "tiny-qwen3-vl"
EPISODES = 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Participant:
    """A tenant of the demo: what it records and the job it submits."""

    tenant: str
    email: str
    environment: str
    cameras: str
    head: dict[str, Any]
    training: dict[str, Any]
    optimizer: dict[str, Any]
    episodes: int = EPISODES
    image_size: int = 64
    seed: int = 0

    @property
    def head_name(self) -> str:
        return str(self.head["type"])

    @property
    def task(self) -> str:
        """The environment's name without its package."""
        return self.environment.rpartition("/")[2]

    @property
    def dataset_name(self) -> str:
        return f"{self.task} demonstrations, {self.cameras}"

    def specification(self, version_id: str) -> dict[str, Any]:
        """The job as the API takes it."""
        return {
            "kind": "sft",
            "name": f"{self.task} {self.head_name}",
            "base_model": BASE_MODEL,
            "head": self.head,
            "dataset": {"id": version_id, "image_size": self.image_size},
            "training": self.training,
            "optimizer": self.optimizer,
        }


_TRAINING = {"steps": 400, "batch_size": 16, "evaluate_every": 100, "checkpoint_every": 50}
_FLOW_HEAD = {
    "type": "gr00t",
    "horizon": 4,
    "tap": "vision",
    "width": 128,
    "layers": 4,
    "heads": 4,
    "output_width": 128,
    "future_tokens": 4,
    "noise_draws": 2,
    "dropout": 0.1,
}
_MLP_HEAD = {"type": "mlp", "horizon": 4}


def _pair(one_view: tuple[str, str], two_views: tuple[str, str]) -> tuple[Participant, Participant]:
    """(environment, cameras) of each: a regression head on one camera, a flow head on two."""
    regression = Participant(
        tenant="Demo lab A",
        email="lab-a@demo.invalid",
        environment=one_view[0],
        cameras=one_view[1],
        head=_MLP_HEAD,
        # Its steps are cheap, and tenants get equal device time, not equal steps: a larger batch keeps pace.
        training=_TRAINING | {"batch_size": 32},
        optimizer={"lr": 1e-3, "warmup_steps": 30},
    )
    flow = Participant(
        tenant="Demo lab B",
        email="lab-b@demo.invalid",
        environment=two_views[0],
        cameras=two_views[1],
        head=_FLOW_HEAD,
        training=_TRAINING,
        optimizer={"lr": 2e-3, "warmup_steps": 30},
        seed=1,
    )
    return regression, flow


MANISKILL = _pair(("PushCube-v1", "base"), ("PickCube-v1", "base,hand"))
PUSHT = _pair(("gym_pusht/PushT-v0", "top"), ("gym_pusht/PushT-v0", "top,agent"))
