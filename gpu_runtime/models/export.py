"""A trained policy as a folder that anybody can check and load; loading fails closed.

adapter.safetensors      head weights and fitted feature statistics
norm_stats.json          openpi's shape            dataset_statistics.json  StarVLA's shape
lora/                    low-rank updates of the base in PEFT's format, where the policy has any
probe.safetensors        the live policy's actions on recorded frames (after RL: with the observations themselves)
manifest.json            everything else, and the hash of every file
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch

from gpu_runtime.models import statistics_files
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.folders import atomic_folder, listing, write_json
from gpu_runtime.models.heads.flow import TIME_CONVENTION
from gpu_runtime.models.lora.adapter import LoraAdapter
from gpu_runtime.models.lora.peft_files import save_peft
from gpu_runtime.models.manifest import NAME, AdapterManifest, seal
from gpu_runtime.models.policy import STATE_MODE, Policy
from gpu_runtime.models.probe import Probe
from gpu_runtime.models.weights import write_tensors

WEIGHTS = "adapter.safetensors"
LORA_FOLDER = "lora"
PROBE = "probe.safetensors"
PACKAGES = ("joynexus", "torch", "transformers", "safetensors", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a policy came from: what the slot itself doesn't know."""

    job_id: str
    tenant_id: str
    dataset_fingerprint: str
    final_metrics: Mapping[str, float]
    evaluation: Mapping[str, float]
    parent: str | None = None  # adapter_id of the policy that reinforcement learning started from
    environment: str | None = None
    algorithm: str | None = None
    env_steps: int | None = None


class Trained(Protocol):
    """What is exported of a slot: its policy and how that came about.

    The policy alone: a critic and the exploration's parameters are of use to further training only, and stay in
    checkpoints.
    """

    policy: Policy
    step: int

    @property
    def partitions(self) -> int: ...

    @property
    def kind(self) -> Literal["sft", "rl"]: ...

    @property
    def seed(self) -> int: ...

    @property
    def policy_version(self) -> int: ...


def export_adapter(
    slot: Trained, folder: Path, *, backbone: Backbone, provenance: Provenance, probe: Probe
) -> AdapterManifest:
    """Write the adapter; ``folder`` is there completely or not at all."""
    policy = slot.policy
    with atomic_folder(folder) as temporary:
        write_tensors(temporary / WEIGHTS, policy.head.state_dict(), {"format": "pt"})
        if policy.lora is not None:
            save_peft(policy.lora, temporary / LORA_FOLDER, backbone.info)
        write_tensors(temporary / PROBE, _probe_tensors(probe))
        key = policy.spec.dataset.id
        statistics_files.write_statistics(
            temporary, policy.statistics, key=key, actions=policy.actions, states=policy.states
        )
        sections = _base_sections(policy, backbone) | _policy_sections(policy) | _history(slot, provenance, probe)
        manifest = seal(sections | {"files": listing(temporary)})
        write_json(temporary / NAME, manifest.model_dump(mode="json"))
    return manifest


def _base_sections(policy: Policy, backbone: Backbone) -> dict[str, Any]:
    prefix = policy.signature(backbone)
    return {
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "label": "random weights" if backbone.info.random_weights else None,
        "versions": {name: version(name) for name in PACKAGES},
        "base_model": backbone.info.model_dump(mode="json"),
        "prefix": prefix.to_json(),
        "prefix_signature": prefix.hash,
    }


def _policy_sections(policy: Policy) -> dict[str, Any]:
    schema, spec = policy.schema, policy.spec
    states = policy.states
    return {
        "head": {
            "type": spec.head.type,
            "config": spec.head.model_dump(mode="json"),
            "fit_shape": policy.head.fit_shape(),
            "param_count": sum(p.numel() for p in policy.head.parameters()),
            "time_convention": TIME_CONVENTION if spec.head.type == "gr00t" else None,
        },
        "lora": None if policy.lora is None else _lora_section(policy.lora),
        "action": {
            "dim": schema.action.dim,
            "horizon": policy.horizon,
            "names": schema.action.names,
            "representation": schema.representation,
            "gripper": None if schema.gripper is None else schema.gripper.model_dump(mode="json"),
            "control_hz": schema.control_hz,
        },
        "state": None if states is None else {"dim": states.dim, "names": states.names},
        "norm": {
            "action_mode": spec.normalization,
            "action_mask": (~policy.actions.degenerate_D).tolist(),
            "state_mode": None if states is None else STATE_MODE,
            "state_mask": None if states is None else (~states.degenerate_D).tolist(),
            "statistics_hash": policy.statistics.hash,
            "unnorm_key": spec.dataset.id,
        },
        "spec": spec.model_dump(mode="json"),
        "dataset_schema": schema.model_dump(mode="json"),
    }


def _lora_section(adapter: LoraAdapter) -> dict[str, Any]:
    asked = adapter.spec.model_dump(mode="json")
    return asked | {"param_count": sum(p.numel() for p in adapter.parameters()), "folder": LORA_FOLDER}


def _history(slot: Trained, provenance: Provenance, probe: Probe) -> dict[str, Any]:
    spec = slot.policy.spec
    return {
        "training": {
            "kind": slot.kind,
            "job_id": provenance.job_id,
            "tenant_id": provenance.tenant_id,
            "steps": slot.step,
            "policy_version": slot.policy_version,
            "seed": slot.seed,
            "dataset_id": spec.dataset.id,
            "dataset_fingerprint": provenance.dataset_fingerprint,
            "partitions": slot.partitions,
            "final_metrics": dict(provenance.final_metrics),
            "parent": provenance.parent,
            "environment": provenance.environment,
            "algorithm": provenance.algorithm,
            "env_steps": provenance.env_steps,
        },
        "evaluation": dict(provenance.evaluation),
        "probe": {
            "file": PROBE,
            "episode": probe.episode,
            "frames": list(probe.frames),
            "noise_seed": probe.noise_seed,
            "instructions": () if probe.observations is None else probe.observations.instructions,
        },
    }


def _probe_tensors(probe: Probe) -> dict[str, torch.Tensor]:
    observed = {} if probe.observations is None else probe.observations.tensors()
    return observed | {"actions": torch.from_numpy(np.ascontiguousarray(probe.actions_NHA))}
