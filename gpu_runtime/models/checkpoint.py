"""A slot on disk: everything that resuming needs to equal never having stopped.

head.safetensors       weights and fitted feature statistics
lora.safetensors       low-rank updates of the base, where the job trains any
optimizer.safetensors  AdamW's moments and step counts, by parameter name
random.safetensors     state of the tenant's generator
slot.json              specification, schema, statistics, step, consumed partitions, hashes of the files above
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from gpu_runtime.models.errors import AdapterError, CheckpointError
from gpu_runtime.models.folders import sha256
from gpu_runtime.models.lora.adapter import AdaptableBase
from gpu_runtime.models.policy import Policy
from gpu_runtime.models.slot_files import SlotFiles
from gpu_runtime.models.slots import Slot
from gpu_runtime.models.weights import fill_module, read_tensors
from gpu_runtime.protocol.schema import DatasetSchema, DatasetStatistics
from gpu_runtime.protocol.specs import SftJobSpec

FORMAT = 1
LORA = "lora.safetensors"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def save_slot(slot: Slot, folder: Path) -> None:
    """Write a checkpoint; ``folder`` is there completely or not at all."""
    slot_files(slot).write(folder)


def slot_files(slot: Slot) -> SlotFiles:
    """What a checkpoint of the slot consists of."""
    tensors = {"head.safetensors": slot.policy.head.state_dict()}
    if slot.lora is not None:
        tensors[LORA] = slot.lora.state_dict()
    tensors["optimizer.safetensors"] = slot.weights.moments()
    tensors["random.safetensors"] = {"generator": slot.generator.get_state()}
    return SlotFiles(tensors=tensors, document=_document(slot))


def load_slot(
    folder: Path,
    *,
    tap_width: Callable[[str], int],
    spec: SftJobSpec | None = None,
    device: torch.device | str = "cpu",
    base: AdaptableBase | None = None,
) -> Slot:
    """Rebuild a slot. Raises CheckpointError for an incomplete or altered folder, or one of another ``spec``."""
    document = read_document(folder)
    try:
        stored = SftJobSpec.model_validate(document["spec"])
        if spec is not None and spec != stored:
            raise CheckpointError(f"{folder.name}: written for another specification ({stored.name!r})")
        policy = Policy(
            spec=stored,
            schema=DatasetSchema.model_validate(document["schema"]),
            statistics=DatasetStatistics.model_validate(document["statistics"]),
            tap_width=tap_width,
            device=device,
            base=base,
        )
        policy.head.allocate(document["fit_shape"])
        fill_module(policy.head, read_tensors(folder / "head.safetensors"), source="head.safetensors")
        if policy.lora is not None:
            fill_module(policy.lora, read_tensors(folder / LORA), source=LORA)
        return _restore(Slot(policy), folder, document)
    except (KeyError, TypeError, OSError, ValidationError, AdapterError) as error:
        raise CheckpointError(f"{folder.name}: {type(error).__name__}: {error}") from error


def _document(slot: Slot) -> dict[str, Any]:
    policy = slot.policy
    return {
        "format": FORMAT,
        "spec": policy.spec.model_dump(mode="json"),
        "schema": policy.schema.model_dump(mode="json"),
        "statistics": policy.statistics.model_dump(mode="json"),
        "step": slot.step,
        "policy_version": slot.policy_version,
        "consumed": list(slot.consumed),
        "fit_shape": policy.head.fit_shape(),
        "action_guard": slot.action_guard.to_json(),
        "state_guard": None if slot.state_guard is None else slot.state_guard.to_json(),
    }


def read_document(folder: Path) -> dict[str, Any]:
    """The description, after checking its format and the bytes of every file it lists."""
    try:
        document = json.loads((folder / "slot.json").read_text("utf-8"))
        if document["format"] != FORMAT:
            raise CheckpointError(f"{folder.name}: format {document['format']!r}, allowed: {FORMAT}")
        for entry in document["files"]:
            if sha256(folder / Path(entry["path"]).name) != entry["sha256"]:
                raise CheckpointError(f"{folder.name}: {entry['path']} is not the file that was written")
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{folder.name}: {type(error).__name__}: {error}") from error
    return document


def moments(optimizer: torch.optim.AdamW, named: Mapping[str, torch.nn.Parameter]) -> dict[str, torch.Tensor]:
    """AdamW's state by parameter name; zeros before the first step, which is what AdamW itself starts from."""
    tensors = {}
    for name, parameter in named.items():
        state = optimizer.state.get(parameter) or {}
        for key in MOMENTS:
            zero = torch.zeros(()) if key == "step" else torch.zeros_like(parameter)
            tensors[f"{key}/{name}"] = state.get(key, zero)
    return tensors


def restore_moments(
    optimizer: torch.optim.AdamW, named: Mapping[str, torch.nn.Parameter], tensors: Mapping[str, torch.Tensor]
) -> None:
    """Give AdamW back what ``moments`` took down."""
    for name, parameter in named.items():
        # a fused AdamW keeps its step count beside the parameter too
        optimizer.state[parameter] = {key: tensors[f"{key}/{name}"].to(parameter.device) for key in MOMENTS}


def _restore(slot: Slot, folder: Path, document: dict[str, Any]) -> Slot:
    slot.weights.restore_moments(read_tensors(folder / "optimizer.safetensors"))
    slot.generator.set_state(read_tensors(folder / "random.safetensors")["generator"])
    slot.step = int(document["step"])
    slot.consumed.extend(document["consumed"])
    slot.action_guard.restore(document["action_guard"])
    if slot.state_guard is not None:
        slot.state_guard.restore(document["state_guard"])
    return slot
