"""Loading an exported adapter onto a base: every doubt is a refusal with its own name."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from gpu_runtime.batching.signature import PrefixSignature
from gpu_runtime.models import statistics_files
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.errors import (
    BaseMismatch,
    FileAltered,
    ManifestInvalid,
    PrefixMismatch,
    StatisticsAltered,
    StatisticsMissing,
    TensorMismatch,
)
from gpu_runtime.models.export import LORA_FOLDER, PROBE, WEIGHTS
from gpu_runtime.models.folders import sha256
from gpu_runtime.models.lora.identity import freeze_adapter
from gpu_runtime.models.lora.peft_files import load_peft
from gpu_runtime.models.manifest import AdapterManifest, read_manifest
from gpu_runtime.models.observations import Observations
from gpu_runtime.models.policy import Policy
from gpu_runtime.models.probe import Probe
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.weights import fill_module, read_tensors
from gpu_runtime.protocol.catalog import DEFAULT_BASE_MODELS, parse_base_models

EXPECTED_FILES = frozenset({WEIGHTS, PROBE, *statistics_files.NAMES})
LORA_FILES = frozenset(f"{LORA_FOLDER}/{name}" for name in ("adapter_config.json", "adapter_model.safetensors"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A policy on its base, its papers and its yardstick."""

    policy: Policy
    manifest: AdapterManifest
    probe: Probe


def adapter_backbone(manifest: AdapterManifest, name: str | None = None, *, device: str = "cpu") -> Backbone:
    """The base named by the caller or the manifest, from JOYNEXUS_BASE_MODELS, in the adapter's precision.

    Raises BaseMismatch for a name that is not listed there.
    """
    entries = parse_base_models(os.environ.get("JOYNEXUS_BASE_MODELS", DEFAULT_BASE_MODELS))
    wanted = name or manifest.base_model.name
    if wanted not in entries:
        raise BaseMismatch(f"base model {wanted!r} is not in JOYNEXUS_BASE_MODELS, allowed: {sorted(entries)}")
    return load_backbone(entries[wanted], device=device, dtype=manifest.base_model.dtype)


def load_adapter(folder: Path, backbone: Backbone, *, device: torch.device | str = "cpu") -> Adapter:
    """Check and load. Raises a subclass of AdapterError: nothing of a doubtful adapter is used."""
    manifest = read_manifest(folder)
    _check_base(manifest, backbone)
    _check_files(folder, manifest)
    statistics = statistics_files.read_statistics(
        folder, key=manifest.norm.unnorm_key, expected_hash=manifest.norm.statistics_hash
    )
    policy = _build(manifest, backbone, statistics, device)
    _fill_lora(policy, folder, backbone)
    _check_prefix(manifest, policy.signature(backbone))
    _fill(policy, folder, manifest)
    return Adapter(policy=policy, manifest=manifest, probe=_read_probe(folder, manifest))


def _check_base(manifest: AdapterManifest, backbone: Backbone) -> None:
    for field in ("name", "revision", "dtype"):
        wanted, found = getattr(manifest.base_model, field), getattr(backbone.info, field)
        if wanted != found:
            raise BaseMismatch(f"base_model.{field}: the adapter needs {wanted!r}, the loaded base has {found!r}")


def _check_files(folder: Path, manifest: AdapterManifest) -> None:
    listed = {entry.path: entry for entry in manifest.files}
    expected = EXPECTED_FILES if manifest.spec.lora is None else EXPECTED_FILES | LORA_FILES
    if listed.keys() != expected:
        raise ManifestInvalid(f"files: {sorted(listed)}, allowed: {sorted(expected)}")
    for name, entry in sorted(listed.items()):
        of_statistics = name in statistics_files.NAMES
        if not (folder / name).is_file():
            raise (StatisticsMissing if of_statistics else FileAltered)(f"{name}: not in the folder")
        if sha256(folder / name) != entry.sha256:
            raise (StatisticsAltered if of_statistics else FileAltered)(f"{name}: not the file the manifest lists")


def _build(
    manifest: AdapterManifest,
    backbone: Backbone,
    statistics: statistics_files.DatasetStatistics,
    device: torch.device | str,
) -> Policy:
    try:
        return Policy(
            spec=manifest.spec,
            schema=manifest.dataset_schema,
            statistics=statistics,
            tap_width=backbone.tap_width,
            device=device,
            base=backbone,
        )
    except ValueError as error:
        raise ManifestInvalid(f"spec: {error}") from error


def _check_prefix(manifest: AdapterManifest, current: PrefixSignature) -> None:
    try:
        stored = PrefixSignature.from_json(manifest.prefix)
    except (TypeError, KeyError) as error:
        raise ManifestInvalid(f"prefix: {error}") from error
    if stored.hash != manifest.prefix_signature:
        raise ManifestInvalid("prefix_signature does not follow from prefix")
    if current.hash != stored.hash:
        raise PrefixMismatch(f"the prefix differs in {', '.join(current.difference(stored))}")


def _fill_lora(policy: Policy, folder: Path, backbone: Backbone) -> None:
    """Take up the updates of the base; from here on they only act. The prefix then proves that they are whole."""
    if policy.lora is None:
        return
    loaded = load_peft(folder / LORA_FOLDER, backbone)
    if (loaded.spec.scaling, loaded.paths) != (policy.lora.spec.scaling, policy.lora.paths):
        raise ManifestInvalid(f"spec.lora: {policy.lora.spec}, but {LORA_FOLDER} holds {loaded.spec}")
    fill_module(policy.lora, loaded.state_dict(), source=LORA_FOLDER)
    freeze_adapter(policy.lora)


def _fill(policy: Policy, folder: Path, manifest: AdapterManifest) -> None:
    tensors = read_tensors(folder / WEIGHTS)
    largest = max((tensor.shape[0] for tensor in tensors.values() if tensor.ndim), default=0)
    if bad := {name: size for name, size in manifest.head.fit_shape.items() if not 0 < size <= largest}:
        raise TensorMismatch(f"head.fit_shape {bad}: no tensor of {WEIGHTS} is that large")
    try:
        policy.head.allocate(manifest.head.fit_shape)
    except KeyError as error:
        raise TensorMismatch(f"head.fit_shape: {error} is missing") from error
    fill_module(policy.head, tensors, source=WEIGHTS)


def _read_probe(folder: Path, manifest: AdapterManifest) -> Probe:
    """What the live policy did, and on what; it must be of the manifest's sizes."""
    tensors, section = read_tensors(folder / PROBE), manifest.probe
    actions, kept = tensors.get("actions"), section.episode is None
    samples = len(section.instructions if kept else section.frames)
    expected = (samples, manifest.action.horizon, manifest.action.dim)
    if actions is None or tuple(actions.shape) != expected:
        found = None if actions is None else list(actions.shape)
        raise TensorMismatch(f"{PROBE}: tensor 'actions' is {found}, allowed: {list(expected)}")
    return Probe(
        episode=section.episode,
        frames=section.frames,
        noise_seed=section.noise_seed,
        actions_NHA=actions.numpy(),
        observations=Observations.from_tensors(tensors, section.instructions, PROBE) if kept else None,
    )
