"""What a specification must agree with before it is admitted; here those that start from demonstrations."""

from collections.abc import Iterator

from gpu_runtime.protocol.job_specs import JobSpec
from gpu_runtime.protocol.lora import LoraSpec
from gpu_runtime.protocol.messages import BaseModelInfo
from gpu_runtime.protocol.schema import DatasetSummary
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.protocol.state_only import why_it_needs_cameras, why_lora_is_useless
from jobs.services.admission.policies import admit_policy
from jobs.services.admission.start import Start, bases_allowed, refused, resident_base
from tenants.datasets.models import DatasetVersion, VersionState
from tenants.datasets.selectors import version_get
from tenants.errors import ApplicationError, FieldError
from tenants.models import Tenant


def admit(tenant: Tenant, spec: JobSpec) -> Start:
    """What the job starts from. Raises ApplicationError 422 with every disagreement at once."""
    return admit_demonstrations(tenant, spec) if isinstance(spec, SftJobSpec) else admit_policy(tenant, spec)


def admit_demonstrations(tenant: Tenant, spec: SftJobSpec) -> Start:
    """The dataset's summary and the resident bases must agree with the specification. Raises ApplicationError 422."""
    errors = list(_base_errors(spec))
    version, dataset_errors = _dataset(tenant, spec)
    errors += dataset_errors
    if version is not None:
        errors += _summary_errors(spec, DatasetSummary.model_validate(version.summary))
    if errors or version is None:
        raise refused(errors)
    return Start(base_model=spec.base_model, head=spec.head.type, dataset_version=version)


def _base_errors(spec: SftJobSpec) -> Iterator[FieldError]:
    is_offered, base = resident_base(spec.base_model)
    if not is_offered:
        detail = f"Base model {spec.base_model!r} is not resident here. Allowed: {bases_allowed()}."
        yield FieldError(pointer="/base_model", code="unknown_base_model", detail=detail)
        return
    tap = getattr(spec.head, "tap", "")
    if base is not None and tap.startswith("layer:") and not _has_layer(base, int(tap.removeprefix("layer:"))):
        detail = (
            f"Tap {tap!r}: {base.name!r} has {base.layers} text layers. "
            f"Allowed: layer:0 to layer:{base.layers - 1}, or layer:-{base.layers} to layer:-1."
        )
        yield FieldError(pointer="/head/tap", code="tap_out_of_range", detail=detail)
    if base is not None and base.lora_modules and spec.lora is not None:
        yield from _lora_errors(spec.lora, base)


def _lora_errors(lora: LoraSpec, base: BaseModelInfo) -> Iterator[FieldError]:
    """An adapter updates modules that there are, and is smaller than they."""
    chosen = [module for module in base.lora_modules if module.name in lora.target_modules]
    if not chosen:
        has = ", ".join(dict.fromkeys(module.name for module in base.lora_modules))
        detail = f"target_modules {list(lora.target_modules)}: {base.name!r} has none of them. Allowed: {has}."
        yield FieldError(pointer="/lora/target_modules", code="unknown_target_modules", detail=detail)
        return
    largest = min(min(module.inputs, module.outputs) for module in chosen)
    if lora.rank > largest:
        detail = f"Rank {lora.rank}: the smallest chosen module has {largest} dimensions. Allowed: 1 to {largest}."
        yield FieldError(pointer="/lora/rank", code="rank_too_high", detail=detail)


def _has_layer(base: BaseModelInfo, layer: int) -> bool:
    return -base.layers <= layer < base.layers


def _dataset(tenant: Tenant, spec: SftJobSpec) -> tuple[DatasetVersion | None, list[FieldError]]:
    """A foreign version and a missing one are the same answer."""
    try:
        version = version_get(tenant, spec.dataset.id)
    except ApplicationError:
        detail = f"There is no dataset version {spec.dataset.id!r}. Allowed: ids of your own versions."
        return None, [FieldError(pointer="/dataset/id", code="unknown_dataset", detail=detail)]
    if version.state != VersionState.READY:
        why = f" ({version.reason})" if version.reason else ""
        detail = f"Dataset version {spec.dataset.id!r} is {version.state}{why}. Allowed: a version that is ready."
        return None, [FieldError(pointer="/dataset/id", code="dataset_not_ready", detail=detail)]
    return version, []


def _summary_errors(spec: SftJobSpec, summary: DatasetSummary) -> Iterator[FieldError]:
    yield from _camera_errors(spec, [camera.key for camera in summary.schema_.cameras])
    action_dim, asked = summary.schema_.action.dim, spec.dataset.action_dim
    if asked is not None and asked != action_dim:
        detail = f"action_dim {asked}: the dataset's actions have {action_dim} dimensions. Allowed: {action_dim}."
        yield FieldError(pointer="/dataset/action_dim", code="action_dim_mismatch", detail=detail)
    if spec.dataset.use_state and summary.schema_.state is None:
        detail = "use_state true: the dataset records no state. Allowed: false."
        yield FieldError(pointer="/dataset/use_state", code="no_state", detail=detail)
    if spec.lora is not None and (why := why_lora_is_useless(spec)) is not None:
        yield FieldError(pointer="/lora", code="lora_without_effect", detail=f"lora: {why}.")
    longest = summary.episode_length_max
    if spec.head.horizon > longest:
        detail = f"Horizon {spec.head.horizon}: the longest episode has {longest} frames. Allowed: 1 to {longest}."
        yield FieldError(pointer="/head/horizon", code="horizon_too_long", detail=detail)
    if spec.training.holdout_fraction > 0 and summary.episodes < 2:
        detail = (
            f"holdout_fraction {spec.training.holdout_fraction}: the dataset has one episode, which cannot be "
            "trained on and held out at once. Allowed: 0."
        )
        yield FieldError(pointer="/training/holdout_fraction", code="too_few_episodes", detail=detail)


def _camera_errors(spec: SftJobSpec, available: list[str]) -> Iterator[FieldError]:
    asked = available if spec.dataset.cameras is None else list(spec.dataset.cameras)
    pointer, has = "/dataset/cameras", f"the dataset has {available}"
    if not asked and (why := why_it_needs_cameras(spec)) is not None:
        yield FieldError(pointer=pointer, code="no_camera", detail=f"No camera is chosen: {why}; {has}.")
    unknown = [key for key in asked if key not in available]
    if unknown:
        detail = f"Unknown cameras {unknown} in {asked}; {has}. Allowed: any of those, in any order."
        yield FieldError(pointer=pointer, code="unknown_camera", detail=detail)
    if len(set(asked)) != len(asked):
        yield FieldError(pointer=pointer, code="repeated_camera", detail=f"{asked} names a camera twice; {has}.")
