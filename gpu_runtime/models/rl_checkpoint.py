"""A reinforcement-learning slot on disk: resuming equals never having stopped, reference and critic included.

lora.safetensors         the policy's low-rank updates of the base, where it has any; they stay as they are
head.safetensors         weights of the policy's head, as in a checkpoint of imitation
exploration.safetensors  what its noise follows from: log-std, noise network, noise level
value.safetensors        the critic, where there is one
reference.safetensors    the frozen start, where one is kept
optimizer.safetensors    AdamW's moments and step counts, by parameter name
random.safetensors       state of the tenant's generator
observed.safetensors     a few observations of the last batch, for the probe of an export
slot.json                specifications, schema, statistics, counters, hashes of the files above
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpu_runtime.models.checkpoint import FORMAT, LORA, moments, read_document, restore_moments
from gpu_runtime.models.errors import AdapterError, CheckpointError
from gpu_runtime.models.lora.adapter import AdaptableBase
from gpu_runtime.models.observations import Observations
from gpu_runtime.models.policy import Policy
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.models.slot_files import SlotFiles
from gpu_runtime.models.weights import fill_module, read_tensors
from gpu_runtime.protocol.exploration import ActorCriticSpec
from gpu_runtime.protocol.policy_specs import RlJobSpec
from gpu_runtime.protocol.schema import DatasetSchema, DatasetStatistics
from gpu_runtime.protocol.specs import OptimizerSpec, SftJobSpec


def save_rl_slot(slot: RlSlot, folder: Path) -> None:
    """Write a checkpoint; ``folder`` is there completely or not at all."""
    rl_slot_files(slot).write(folder)


def rl_slot_files(slot: RlSlot) -> SlotFiles:
    """What a checkpoint of the slot consists of."""
    models = slot.models
    tensors = {"head.safetensors": slot.policy.head.state_dict()}
    if slot.lora is not None:
        tensors[LORA] = slot.lora.state_dict()
    tensors["exploration.safetensors"] = models.actor.exploration_state()
    if models.critic is not None:
        tensors["value.safetensors"] = models.critic.state_dict()
    if models.reference is not None:
        tensors["reference.safetensors"] = models.reference.state_dict()
    tensors["optimizer.safetensors"] = moments(slot.optimizer, slot.named_parameters())
    tensors["random.safetensors"] = {"generator": slot.generator.get_state()}
    # a file of no tensor at all could not be read again
    tensors["observed.safetensors"] = {"rows": torch.tensor(len(slot.observed))} | slot.observed.tensors()
    return SlotFiles(tensors=tensors, document=_document(slot))


def load_rl_slot(
    folder: Path,
    *,
    tap_width: Callable[[str], int],
    spec: RlJobSpec | None = None,
    device: torch.device | str = "cpu",
    base: AdaptableBase | None = None,
) -> RlSlot:
    """Rebuild a slot. Raises CheckpointError for an altered folder, or one of another kind or ``spec``."""
    document = read_document(folder)
    if document.get("kind") != RlSlot.kind:
        raise CheckpointError(f"{folder.name}: kind {document.get('kind', 'sft')!r}, allowed: {RlSlot.kind!r}")
    try:
        job = None if document["job"] is None else RlJobSpec.model_validate(document["job"])
        if spec is not None and spec != job:
            raise CheckpointError(f"{folder.name}: written for another specification ({job and job.name!r})")
        policy = Policy(
            spec=SftJobSpec.model_validate(document["spec"]),
            schema=DatasetSchema.model_validate(document["schema"]),
            statistics=DatasetStatistics.model_validate(document["statistics"]),
            tap_width=tap_width,
            device=device,
            base=base,
        )
        policy.head.allocate(document["fit_shape"])
        if policy.lora is not None:
            fill_module(policy.lora, read_tensors(folder / LORA), source=LORA)
        slot = RlSlot(
            policy,
            ActorCriticSpec.model_validate(document["actor_critic"]),
            optimizer=OptimizerSpec.model_validate(document["optimizer"]),
            total_steps=int(document["total_steps"]),
            seed=int(document["seed"]),
            job=job,
        )
        return _restore(slot, folder, document)
    except (KeyError, TypeError, ValueError, OSError, AdapterError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{folder.name}: {type(error).__name__}: {error}") from error


def _document(slot: RlSlot) -> dict[str, Any]:
    policy, critic = slot.policy, slot.models.critic
    return {
        "format": FORMAT,
        "kind": slot.kind,
        "spec": policy.spec.model_dump(mode="json"),
        "schema": policy.schema.model_dump(mode="json"),
        "statistics": policy.statistics.model_dump(mode="json"),
        "actor_critic": slot.spec.model_dump(mode="json"),
        "optimizer": slot.optimizer_spec.model_dump(mode="json"),
        "job": None if slot.job is None else slot.job.model_dump(mode="json"),
        "total_steps": slot.total_steps,
        "seed": slot.seed,
        "step": slot.step,
        "updates": slot.updates,
        "policy_version": slot.policy_version,
        "partitions": slot.partitions,
        "observed": slot.observed.instructions,
        "consumed": list(slot.consumed),
        "fit_shape": policy.head.fit_shape(),
        "value_fit_shape": None if critic is None else critic.fit_shape(),
    }


def _restore(slot: RlSlot, folder: Path, document: dict[str, Any]) -> RlSlot:
    models = slot.models
    head = {f"head.{name}": tensor for name, tensor in read_tensors(folder / "head.safetensors").items()}
    fill_module(models.actor, head | read_tensors(folder / "exploration.safetensors"), source="head and exploration")
    if models.critic is not None:
        models.critic.allocate(document["value_fit_shape"])
        fill_module(models.critic, read_tensors(folder / "value.safetensors"), source="value.safetensors")
    if models.reference is not None:
        fill_module(models.reference, read_tensors(folder / "reference.safetensors"), source="reference.safetensors")
    restore_moments(slot.optimizer, slot.named_parameters(), read_tensors(folder / "optimizer.safetensors"))
    slot.generator.set_state(read_tensors(folder / "random.safetensors")["generator"])
    slot.step, slot.updates = int(document["step"]), int(document["updates"])
    slot.partitions = int(document["partitions"])
    observed = read_tensors(folder / "observed.safetensors")
    slot.observed = Observations.from_tensors(observed, tuple(document["observed"]), "observed.safetensors")
    slot.consumed.extend(document["consumed"])
    return slot
