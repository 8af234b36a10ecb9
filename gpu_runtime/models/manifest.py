"""manifest.json of an exported adapter: everything a stranger needs to use it, and to refuse to."""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from gpu_runtime.models.errors import ManifestInvalid, UnknownSchemaMajor
from gpu_runtime.protocol.base import Message, fingerprint
from gpu_runtime.protocol.messages import ArtifactFile, BaseModelInfo
from gpu_runtime.protocol.schema import DatasetSchema
from gpu_runtime.protocol.specs import SftJobSpec

SCHEMA_MAJOR = 1
SCHEMA_VERSION = f"{SCHEMA_MAJOR}.3"
"""1.1: the policy that training started from, probes without a dataset. 1.2: low-rank updates of the base.
1.3: their size, and which modules of the base there are."""
NAME = "manifest.json"


class HeadSection(Message):
    """The action head: its configuration and the sizes found by fitting."""

    type: str
    config: dict[str, Any]
    fit_shape: dict[str, int]
    param_count: int
    time_convention: str | None  # flow heads only


class LoraSection(Message):
    """Low-rank updates of the base's text, as ``spec`` asked for them; ``folder`` holds them in PEFT's format."""

    rank: int
    alpha: float
    target_modules: tuple[str, ...]
    param_count: int
    folder: str


class ActionSection(Message):
    dim: int
    horizon: int
    names: tuple[str, ...]
    representation: str
    gripper: dict[str, Any] | None
    control_hz: float


class StateSection(Message):
    dim: int
    names: tuple[str, ...]


class NormSection(Message):
    """Modes, which dimensions are scaled, and what the statistics files must hash to."""

    action_mode: str
    action_mask: tuple[bool, ...]  # False: a constant dimension, reproduced as it is
    state_mode: str | None
    state_mask: tuple[bool, ...] | None
    statistics_hash: str
    unnorm_key: str


class TrainingSection(Message):
    """How the policy came about. Of reinforcement learning the dataset is the one its first ancestor learned from."""

    kind: Literal["sft", "rl"]
    job_id: str
    tenant_id: str
    steps: int
    policy_version: int
    seed: int
    dataset_id: str
    dataset_fingerprint: str
    partitions: int
    final_metrics: dict[str, float]
    parent: str | None = None  # adapter_id of the policy it started from
    environment: str | None = None
    algorithm: str | None = None
    env_steps: int | None = None  # played for it


class ProbeSection(Message):
    """The live policy's own actions on frames of one episode, so that a reload can be judged.

    ``episode`` None: on observations that are in the file themselves, with these instructions.
    """

    file: str
    episode: int | None
    frames: tuple[int, ...]
    noise_seed: int
    instructions: tuple[str, ...] = ()


class AdapterManifest(Message):
    """``adapter_id`` is the SHA-256 of all other fields: a manifest that was edited is not loaded."""

    schema_version: str
    adapter_id: str
    created_at: str
    label: str | None  # "random weights" for a base built from configuration
    versions: dict[str, str]
    base_model: BaseModelInfo
    prefix: dict[str, Any]
    prefix_signature: str
    head: HeadSection
    lora: LoraSection | None = None
    action: ActionSection
    state: StateSection | None
    norm: NormSection
    training: TrainingSection
    evaluation: dict[str, float]
    probe: ProbeSection
    spec: SftJobSpec
    dataset_schema: DatasetSchema
    files: tuple[ArtifactFile, ...] = Field(min_length=1)


def seal(fields: dict[str, Any]) -> AdapterManifest:
    """Validate the fields and add the identifier that follows from them."""
    draft = AdapterManifest.model_validate(fields | {"adapter_id": "", "schema_version": SCHEMA_VERSION})
    return draft.model_copy(update={"adapter_id": _identifier(draft.model_dump(mode="json"))})


def read_manifest(folder: Path) -> AdapterManifest:
    """Raises ManifestInvalid (missing, unreadable, edited, unknown field) or UnknownSchemaMajor."""
    try:
        document = json.loads((folder / NAME).read_text("utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError) as error:
        raise ManifestInvalid(f"{NAME}: {type(error).__name__}: {error}") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if not isinstance(version, str):
        raise ManifestInvalid(f"{NAME}: schema_version is {version!r}, allowed: {SCHEMA_MAJOR}.x")
    if version.partition(".")[0] != str(SCHEMA_MAJOR):
        raise UnknownSchemaMajor(f"{NAME}: schema_version {version!r}, allowed: {SCHEMA_MAJOR}.x")
    try:
        manifest = AdapterManifest.model_validate(document)
    except ValidationError as error:
        raise ManifestInvalid(f"{NAME}: {error}") from error
    if manifest.adapter_id != _identifier(document):
        raise ManifestInvalid(f"{NAME}: adapter_id does not follow from the content; the file was edited")
    return manifest


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON")


def _identifier(document: dict[str, Any]) -> str:
    return fingerprint({key: value for key, value in document.items() if key != "adapter_id"})
