"""What the manifest of a published adapter says, as far as admission needs it."""

from pydantic import BaseModel, ConfigDict

from gpu_runtime.protocol.schema import DatasetSchema
from gpu_runtime.protocol.specs import DatasetSelection


class _Section(BaseModel):
    """Part of a manifest that the runtime wrote and keeps complete; we read what we need of it."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Base(_Section):
    name: str
    revision: str


class _Head(_Section):
    type: str


class _Action(_Section):
    horizon: int
    names: tuple[str, ...]


class _State(_Section):
    names: tuple[str, ...]


class _Spec(_Section):
    dataset: DatasetSelection


class AdapterFacts(_Section):
    """Base, head and interface of a policy. ``state`` is None for one that acts without it."""

    base_model: _Base
    head: _Head
    action: _Action
    state: _State | None
    spec: _Spec
    dataset_schema: DatasetSchema

    @property
    def cameras(self) -> tuple[str, ...]:
        """The views it was trained on, in its order."""
        chosen = self.spec.dataset.cameras
        return tuple(camera.key for camera in self.dataset_schema.cameras) if chosen is None else chosen
