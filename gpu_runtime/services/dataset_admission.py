"""What a job on demonstrations is checked for before it is accepted, without reading a file of its dataset."""

from collections.abc import Mapping
from pathlib import Path

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.heads.registry import HEADS
from gpu_runtime.protocol.messages import DatasetBinding, SubmitJob
from gpu_runtime.protocol.schema import DatasetSummary
from gpu_runtime.protocol.specs import MlpHeadSpec, SftJobSpec
from gpu_runtime.protocol.state_only import IMAGE_TAPS, why_it_needs_cameras, why_lora_is_useless
from gpu_runtime.services.errors import InvalidSubmit
from gpu_runtime.training.work import image_bytes


def admit_sft(submit: SubmitJob, *, datasets: Path, bases: Mapping[str, Backbone], batch_bytes_max: int) -> None:
    """Raise InvalidSubmit naming the field, its value and what is allowed. ``batch_bytes_max``: of one batch."""
    spec, binding = submit.spec, submit.dataset
    assert isinstance(spec, SftJobSpec), spec.kind
    assert binding is not None, "checked by the message"
    _check_base(spec, bases)
    dataset_folder(binding, datasets)
    _check_dataset(spec, binding.summary)
    _check_prompts(spec, binding.summary, bases[spec.base_model])
    _check_size(spec, binding.summary, batch_bytes_max)
    _check_lora(spec, bases[spec.base_model])
    if spec.dataset.id != binding.version_id:
        raise InvalidSubmit(
            "dataset_mismatch",
            f"spec asks for dataset {spec.dataset.id!r}, but {binding.version_id!r} is bound to it",
            "dataset.version_id",
        )


def dataset_folder(binding: DatasetBinding, datasets: Path) -> Path:
    """The dataset's folder, which must exist and lie under the dataset root after every link is resolved."""
    key = binding.storage_key
    folder = (datasets / key).resolve()
    if not key or datasets.resolve() not in folder.parents:
        message = f"storage_key {key!r} is not a folder under the dataset root"
        raise InvalidSubmit("dataset_outside_root", message, "dataset.storage_key")
    if not folder.is_dir():
        raise InvalidSubmit("dataset_missing", f"no dataset at storage_key {key!r}", "dataset.storage_key")
    return folder


def _check_base(spec: SftJobSpec, bases: Mapping[str, Backbone]) -> None:
    if spec.base_model not in bases:
        message = f"base model {spec.base_model!r} is not resident; allowed: {', '.join(sorted(bases))}"
        raise InvalidSubmit("unknown_base_model", message, "spec.base_model")
    for tap in HEADS[spec.head.type].taps_of(spec.head):
        try:
            bases[spec.base_model].tap_width(tap)
        except ValueError as error:
            raise InvalidSubmit("unknown_tap", f"base model {spec.base_model}: {error}", "spec.head.tap") from error


def _check_dataset(spec: SftJobSpec, summary: DatasetSummary) -> None:
    schema, wanted = summary.schema_, spec.dataset
    cameras = tuple(camera.key for camera in schema.cameras)
    chosen = cameras if wanted.cameras is None else wanted.cameras
    missing = [key for key in chosen if key not in cameras]
    if missing or len(set(chosen)) != len(chosen):
        message = f"cameras {list(chosen)}: the dataset has {list(cameras)}, each may be named once"
        raise InvalidSubmit("camera_mismatch", message, "spec.dataset.cameras")
    if not chosen and (why := why_it_needs_cameras(spec)) is not None:
        message = f"cameras []: {why}; the dataset has {list(cameras)}"
        raise InvalidSubmit("camera_mismatch", message, "spec.dataset.cameras")
    if wanted.action_dim not in (None, schema.action.dim):
        message = f"action_dim {wanted.action_dim}: the dataset's actions have {schema.action.dim} dimensions"
        raise InvalidSubmit("action_dim_mismatch", message, "spec.dataset.action_dim")
    if wanted.use_state and schema.state is None:
        message = "use_state is true, but the dataset has no state: set it to false"
        raise InvalidSubmit("state_mismatch", message, "spec.dataset.use_state")
    if spec.head.horizon > summary.episode_length_max:
        message = f"horizon {spec.head.horizon}: the longest episode has {summary.episode_length_max} frames"
        raise InvalidSubmit("horizon_mismatch", message, "spec.head.horizon")


def _check_prompts(spec: SftJobSpec, summary: DatasetSummary, backbone: Backbone) -> None:
    """A head that keeps the token grid as it is can read text only where all prompts are equally long."""
    head = spec.head
    if not isinstance(head, MlpHeadSpec) or head.tap in IMAGE_TAPS or spec.dataset.instruction is not None:
        return
    lengths = {backbone.tokens(VLAFeature(images=(), instruction=text)) for text in set(summary.tasks)}
    if len(lengths) > 1:
        message = (
            f"tap {head.tap!r}: head mlp reads prompts of one length, the dataset's {len(summary.tasks)} instructions"
            f" make {min(lengths)} to {max(lengths)} tokens; allowed: one dataset.instruction, head gr00t, or a tap of"
            f" images: {', '.join(IMAGE_TAPS)}"
        )
        raise InvalidSubmit("ragged_prompts", message, "spec.head.tap")


def _check_lora(spec: SftJobSpec, backbone: Backbone) -> None:
    """An adapter must reach what the head reads, and be smaller than what it updates."""
    if spec.lora is None:
        return
    if (why := why_lora_is_useless(spec)) is not None:
        raise InvalidSubmit("lora_without_effect", f"lora: {why}", "spec.lora")
    found = {
        path: module
        for path, module in backbone.lora_modules().items()
        if path.rpartition(".")[2] in spec.lora.target_modules
    }
    if not found:
        message = f"target_modules {list(spec.lora.target_modules)}: base model {spec.base_model} has none of them"
        raise InvalidSubmit("unknown_target_modules", message, "spec.lora.target_modules")
    largest = min(min(module.in_features, module.out_features) for module in found.values())
    if spec.lora.rank > largest:
        message = f"rank {spec.lora.rank}: the smallest chosen module has {largest} dimensions; allowed: up to that"
        raise InvalidSubmit("rank_too_high", message, "spec.lora.rank")


def _check_size(spec: SftJobSpec, summary: DatasetSummary, batch_bytes_max: int) -> None:
    cameras = summary.schema_.cameras if spec.dataset.cameras is None else spec.dataset.cameras
    sample = image_bytes(1, len(cameras), spec.dataset.image_size)
    if spec.training.batch_size * sample > batch_bytes_max:
        message = (
            f"batch_size {spec.training.batch_size}: a sample of {len(cameras)} views at image_size"
            f" {spec.dataset.image_size} has {sample} bytes, a batch may have {batch_bytes_max};"
            f" allowed: at most {batch_bytes_max // sample}"
        )
        raise InvalidSubmit("partition_too_large", message, "spec.training.batch_size")
