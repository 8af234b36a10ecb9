"""From a base's source (built-in name, folder, hub id) to a frozen model with a revision."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3VLConfig

from gpu_runtime.models.backbones.built_in import built_in_config, fill_weights, weights_revision
from gpu_runtime.models.backbones.frozen import FrozenQwen3VL, freeze
from gpu_runtime.models.backbones.images import ImageProcessing
from gpu_runtime.models.backbones.packed_attention import PACKED_ATTENTION
from gpu_runtime.models.backbones.tokenizers import ByteTokenizer, CheckpointTokenizer, Tokenizer

CHECKPOINT_FILES = ("*.safetensors", "*.json", "*.txt", "*.jinja")
"""What is fetched from a hub: no pickled weights, no code."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedBase:
    """A frozen model and what is needed to feed it."""

    model: FrozenQwen3VL
    tokenizer: Tokenizer
    processing: ImageProcessing
    revision: str


def load_built_in(name: str, *, device: torch.device, dtype: torch.dtype) -> LoadedBase:
    """A base built from configuration; the process's random state is left as it was."""
    with torch.random.fork_rng(devices=[]):  # the layers' own initialisers draw before they are overwritten
        model = FrozenQwen3VL._from_config(
            built_in_config(name), dtype=torch.float32, attn_implementation=PACKED_ATTENTION
        )
    fill_weights(model)
    revision = weights_revision(model)
    freeze(model, device=device, dtype=dtype)
    return LoadedBase(model=model, tokenizer=ByteTokenizer(), processing=ImageProcessing(), revision=revision)


def load_checkpoint(source: str, *, device: torch.device, dtype: torch.dtype) -> LoadedBase:
    """A Qwen3-VL checkpoint from a folder or a hub id (``ORG/NAME`` or ``ORG/NAME@COMMIT``), safetensors only.

    Raises ValueError for another architecture, missing weights, pixel statistics or control tokens.
    """
    folder, revision = _locate(source)
    config = Qwen3VLConfig.get_config_dict(folder, local_files_only=True)[0]
    if config.get("model_type") != "qwen3_vl":
        raise ValueError(f"base model {source!r}: model_type {config.get('model_type')!r}, allowed is 'qwen3_vl'")
    model = _read_weights(source, folder, dtype)
    freeze(model, device=device, dtype=dtype)
    vision = model.vision_settings
    assert isinstance(vision.patch_size, int)
    assert isinstance(vision.temporal_patch_size, int)
    processing = ImageProcessing.from_checkpoint(
        folder, patch=vision.patch_size, merge=vision.spatial_merge_size, temporal=vision.temporal_patch_size
    )
    return LoadedBase(model=model, tokenizer=CheckpointTokenizer(folder), processing=processing, revision=revision)


def _read_weights(source: str, folder: Path, dtype: torch.dtype) -> FrozenQwen3VL:
    """The model of a folder; transformers would only warn about a missing weight and make one up."""
    loaded: Any = FrozenQwen3VL.from_pretrained(
        folder,
        dtype=dtype,
        attn_implementation=PACKED_ATTENTION,
        use_safetensors=True,
        local_files_only=True,
        output_loading_info=True,
    )
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        raise ValueError(f"base model {source!r}: {len(missing)} weights are missing, the first is {missing[0]!r}")
    return model


def _locate(source: str) -> tuple[Path, str]:
    """Folder with the files, and the revision: a hub commit, or a hash of a folder's content."""
    if Path(source).is_dir():
        return Path(source), _folder_revision(Path(source))
    from huggingface_hub import snapshot_download

    repository, _, commit = source.partition("@")
    folder = Path(snapshot_download(repository, revision=commit or None, allow_patterns=list(CHECKPOINT_FILES)))
    return folder, folder.name  # the hub cache names a snapshot's folder by its commit


def _folder_revision(folder: Path) -> str:
    """SHA-256 over everything that is read from a folder: an index alone is equal for every fine-tune of a base."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in CHECKPOINT_FILES for path in folder.glob(pattern)):
        with path.open("rb") as file:
            digest.update(f"{path.name}\n".encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
