"""The name of an adapter's weights: equal names mean equal features."""

import hashlib

import torch

from gpu_runtime.models.lora.adapter import LoraAdapter
from gpu_runtime.protocol.base import canonical_json


def adapter_identity(adapter: LoraAdapter) -> str:
    """SHA-256 over specification, modules and every weight. Kept with an adapter that trains no more."""
    frozen = not any(parameter.requires_grad for parameter in adapter.parameters())
    if frozen and (known := adapter.__dict__.get("_identity")) is not None:
        return str(known)
    digest = hashlib.sha256(canonical_json([adapter.spec.model_dump(mode="json"), list(adapter.paths)]))
    for name, tensor in sorted(adapter.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    identity = digest.hexdigest()
    if frozen:
        adapter.__dict__["_identity"] = identity
    return identity


def freeze_adapter(adapter: LoraAdapter) -> LoraAdapter:
    """From here on it acts and trains no more."""
    adapter.requires_grad_(False)
    for parameter in adapter.parameters():
        parameter.grad = None
    return adapter
