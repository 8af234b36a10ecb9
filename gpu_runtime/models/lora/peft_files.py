"""Adapters in PEFT's own format: ``adapter_config.json`` and ``adapter_model.safetensors``.

Names of tensors are PEFT's for the model that the base loads as (``Qwen3VLModel``). What PEFT can say and this base
does not honour is refused by name, never ignored.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from gpu_runtime.models.errors import BaseMismatch, FileAltered, LoraUnsupported, NotSafetensors, TensorMismatch
from gpu_runtime.models.lora.adapter import AdaptableBase, LoraAdapter
from gpu_runtime.models.weights import read_tensors, write_tensors
from gpu_runtime.protocol.lora import TARGET_MODULES, LoraSpec
from gpu_runtime.protocol.messages import BaseModelInfo

CONFIG, WEIGHTS, PICKLED = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."
CONFIG_MAX_BYTES = 1 << 20
TEXT_LAYERS = r".*language_model\.layers\..*"
OFF: tuple[Any, ...] = (None, False, "none", [], {}, 0)
"""Values that leave a PEFT setting unused."""
HONOURED = frozenset(
    {"peft_type", "r", "lora_alpha", "target_modules", "base_model_name_or_path", "revision", "init_lora_weights"}
)
HARMLESS = frozenset(
    {"task_type", "auto_mapping", "peft_version", "inference_mode", "megatron_core", "qalora_group_size",
     "ensure_weight_tying", "layers_pattern"}
)  # fmt: skip
"""Say nothing about the numbers while the settings that they belong to are unused."""


def save_peft(adapter: LoraAdapter, folder: Path, base: BaseModelInfo) -> None:
    """Write both files into ``folder``, loadable by ``peft.PeftModel.from_pretrained`` on the same base."""
    spec = adapter.spec
    config = {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": base.name,
        "revision": base.revision,
        "r": spec.rank,
        "lora_alpha": spec.alpha,
        "lora_dropout": 0.0,
        "target_modules": rf"{TEXT_LAYERS}\.({'|'.join(sorted(spec.target_modules))})",
        "bias": "none",
        "modules_to_save": None,
        "use_dora": False,
        "use_rslora": False,
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    tensors: dict[str, torch.Tensor] = {}
    for path, down_rI, up_Or in zip(adapter.paths, adapter.down, adapter.up, strict=True):
        tensors |= dict(zip(_names(path), (down_rI, up_Or), strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def load_peft(folder: Path, backbone: AdaptableBase) -> LoraAdapter:
    """Read an adapter that we or PEFT wrote; its base's revision must be the resident's where the file names one.

    Raises FileAltered, NotSafetensors, LoraUnsupported, BaseMismatch or TensorMismatch (all AdapterError).
    """
    if (folder / PICKLED).exists():
        raise NotSafetensors(f"{PICKLED}: pickled weights are not read, allowed is {WEIGHTS}")
    config = _read_config(folder / CONFIG)
    _check_settings(config)
    _check_base(config, backbone.info)
    if not (folder / WEIGHTS).is_file():
        raise FileAltered(f"{WEIGHTS}: missing")
    tensors = read_tensors(folder / WEIGHTS)
    adapter = LoraAdapter(_spec(config, tensors), backbone)
    _fill(adapter, tensors)
    return adapter


def _read_config(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > CONFIG_MAX_BYTES:
            raise FileAltered(f"{CONFIG}: larger than {CONFIG_MAX_BYTES} bytes")
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        if isinstance(error, FileAltered):
            raise
        raise FileAltered(f"{CONFIG}: missing or no JSON ({error})") from error
    if not isinstance(config, dict):
        raise FileAltered(f"{CONFIG}: an object is needed, got {type(config).__name__}")
    return config


def _check_settings(config: Mapping[str, Any]) -> None:
    """Everything that would change the numbers and isn't honoured must be unused."""
    if config.get("peft_type") != "LORA":
        raise LoraUnsupported(f"peft_type: {config.get('peft_type')!r}, allowed is 'LORA'")
    for name, value in config.items():
        # dropout acts in PEFT's training only; what is trained here on goes without
        if name not in HONOURED | HARMLESS | {"lora_dropout"} and value not in OFF:
            raise LoraUnsupported(f"{name}: {value!r} is not supported, it must be unused")
    if isinstance(config.get("init_lora_weights"), str):
        raise LoraUnsupported(
            f"init_lora_weights: {config['init_lora_weights']!r} may change the base, allowed are true and false"
        )


def _check_base(config: Mapping[str, Any], base: BaseModelInfo) -> None:
    revision = config.get("revision")
    if revision is not None and revision != base.revision:
        raise BaseMismatch(f"revision: {revision!r}, the resident base {base.name!r} is {base.revision!r}")


def _spec(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> LoraSpec:
    """Targets are read from the tensors' names: PEFT's setting may be a pattern."""
    kinds = {name.removesuffix(".weight").rpartition(".")[0].rpartition(".")[2] for name in tensors}
    if strange := sorted(kinds - set(TARGET_MODULES)):
        raise LoraUnsupported(f"target_modules: {strange[0]!r}, allowed are {', '.join(TARGET_MODULES)}")
    try:
        return LoraSpec(
            rank=config.get("r", 0),
            alpha=config.get("lora_alpha", 0),
            target_modules=tuple(kind for kind in TARGET_MODULES if kind in kinds),
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise LoraUnsupported(f"{first['loc'][0]}: {first['input']!r}, {first['msg']}") from error


def _fill(adapter: LoraAdapter, tensors: Mapping[str, torch.Tensor]) -> None:
    wanted: dict[str, torch.Tensor] = {}
    for path, down_rI, up_Or in zip(adapter.paths, adapter.down, adapter.up, strict=True):
        wanted |= dict(zip(_names(path), (down_rI, up_Or), strict=True))
    if missing := sorted(wanted.keys() - tensors.keys()):
        raise TensorMismatch(f"{WEIGHTS}: tensor {missing[0]!r} is missing ({len(missing)} in all)")
    if extra := sorted(tensors.keys() - wanted.keys()):
        raise TensorMismatch(f"{WEIGHTS}: tensor {extra[0]!r} is no module of this base ({len(extra)} in all)")
    for name, parameter in wanted.items():
        found = tensors[name]
        if found.shape != parameter.shape or not found.is_floating_point():
            raise TensorMismatch(
                f"{WEIGHTS}: tensor {name!r} is {found.dtype} {list(found.shape)}, allowed: {list(parameter.shape)}"
            )
        if not bool(torch.isfinite(found).all()):
            raise TensorMismatch(f"{WEIGHTS}: tensor {name!r} holds NaN or infinity")
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(tensors[name])


def _names(path: str) -> tuple[str, str]:
    return f"{PREFIX}{path}.lora_A.weight", f"{PREFIX}{path}.lora_B.weight"
