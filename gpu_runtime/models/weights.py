"""Tensors on disk: safetensors only, names and shapes checked against the head that reads them."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor, nn

from gpu_runtime.models.errors import NotSafetensors, TensorMismatch


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write contiguous CPU copies."""
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_file(copies, path, metadata=dict(metadata or {}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a whole file. Raises NotSafetensors for any other format."""
    try:
        return load(path.read_bytes())
    except (SafetensorError, ValueError) as error:
        raise NotSafetensors(f"{path.name}: not a safetensors file ({error})") from error


def fill_module(module: nn.Module, tensors: Mapping[str, Tensor], *, source: str) -> None:
    """Copy ``tensors`` into a module of the same names, shapes and precisions. Raises TensorMismatch naming one."""
    expected = module.state_dict()
    if missing := sorted(expected.keys() - tensors.keys()):
        raise TensorMismatch(f"{source}: tensor {missing[0]!r} is missing ({len(missing)} in all)")
    if extra := sorted(tensors.keys() - expected.keys()):
        raise TensorMismatch(f"{source}: tensor {extra[0]!r} is not part of this head ({len(extra)} in all)")
    for name, tensor in tensors.items():
        like = expected[name]
        if tensor.shape != like.shape or tensor.dtype != like.dtype:
            raise TensorMismatch(
                f"{source}: tensor {name!r} is {tensor.dtype} {list(tensor.shape)}, "
                f"allowed: {like.dtype} {list(like.shape)}"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise TensorMismatch(f"{source}: tensor {name!r} holds NaN or infinity")
    module.load_state_dict(dict(tensors))
