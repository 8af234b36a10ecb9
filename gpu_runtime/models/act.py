"""``python -m gpu_runtime act``: run an exported adapter on one recorded episode and compare it with the live policy.

Without a dataset: on the observations that an adapter of reinforcement learning carries with it.

Prints one JSON object. Exit status 0: ran, and agrees with the probe where both exist; 1: refused or differs.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpu_runtime.data.declared import declared_from
from gpu_runtime.data.errors import DatasetError, SelectionMismatch
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.samples import SampleSource
from gpu_runtime.models.adapters import Adapter, adapter_backbone, load_adapter
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.errors import ModelError
from gpu_runtime.models.manifest import read_manifest
from gpu_runtime.models.probe import Probe, probe_frames, probe_observations, run_probe

TOLERANCE = 1e-5


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; prints ``{"error": {"code", "message"}}`` for everything that is refused."""
    arguments = _parser().parse_args(argv)
    try:
        report = act(arguments.adapter, arguments.dataset, arguments.episode, base=arguments.base)
    except (ModelError, DatasetError, ValueError, OSError) as error:
        code = getattr(error, "code", type(error).__name__)
        print(json.dumps({"error": {"code": code, "message": str(error)}}))
        return 1
    print(json.dumps(report, allow_nan=False))
    return 0 if report["max_difference"] is None or report["max_difference"] <= TOLERANCE else 1


def act(adapter: Path, dataset: Path | None, episode: int, *, base: str | None = None) -> dict[str, Any]:
    """Load, check, run. ``max_difference`` is None when the probe was recorded on something else."""
    backbone = adapter_backbone(read_manifest(adapter), base)
    loaded = load_adapter(adapter, backbone)
    if dataset is None:
        return _report(loaded, _replay(loaded, backbone))
    # read as it was at training time: what an importer declared is in the manifest, not in the dataset
    data = LeRobotDataset.open(dataset, declared_from(loaded.manifest.dataset_schema).model_dump(mode="json"))
    _check_dataset(loaded, data, episode)
    source = SampleSource(data, loaded.manifest.spec.dataset, loaded.policy.horizon)
    recorded = loaded.probe
    frames = recorded.frames if recorded.episode == episode else probe_frames(data.lengths[episode])
    found = run_probe(loaded.policy, backbone, source, episode=episode, frames=frames, seed=recorded.noise_seed)
    return _report(loaded, found)


def _replay(loaded: Adapter, backbone: Backbone) -> Probe:
    """The policy on the observations that are kept with it. Raises DatasetError for an adapter that has none."""
    observations = loaded.probe.observations
    if observations is None:
        raise DatasetError("dataset_missing", "--dataset is missing; this adapter's probe is on frames of its dataset")
    return probe_observations(loaded.policy, backbone, observations, seed=loaded.probe.noise_seed)


def _report(loaded: Adapter, found: Probe) -> dict[str, Any]:
    comparable = found.episode == loaded.probe.episode
    comparable = comparable and len(found.actions_NHA) > 0
    difference = np.abs(found.actions_NHA - loaded.probe.actions_NHA).max() if comparable else None
    return {
        "adapter_id": loaded.manifest.adapter_id,
        "label": loaded.manifest.label,
        "policy_version": loaded.manifest.training.policy_version,
        "episode": found.episode,
        "frames": list(found.frames),
        "observations": 0 if found.observations is None else len(found.observations),
        "noise_seed": found.noise_seed,
        "action_names": list(loaded.manifest.action.names),
        "actions": found.actions_NHA.tolist(),
        "max_difference": None if difference is None else float(difference),
        "compared_with_episode": loaded.probe.episode,
        "tolerance": TOLERANCE,
    }


def _check_dataset(loaded: Adapter, data: LeRobotDataset, episode: int) -> None:
    """The dataset must name its dimensions as the policy does, and fit the stored statistics."""
    if not 0 <= episode < len(data.lengths):
        raise DatasetError("episode_missing", f"--episode is {episode}, allowed: 0 to {len(data.lengths) - 1}")
    trained, given = loaded.manifest.dataset_schema, data.schema
    if given.action.names != trained.action.names:
        raise SelectionMismatch(
            "action_mismatch", f"action dimensions {list(given.action.names)}; trained on {list(trained.action.names)}"
        )
    if loaded.policy.states is not None and (given.state is None or given.state.names != loaded.policy.states.names):
        found = None if given.state is None else list(given.state.names)
        raise SelectionMismatch(
            "state_mismatch", f"state dimensions {found}; trained on {list(loaded.policy.states.names)}"
        )
    loaded.policy.check_statistics(data.actions_NA(), data.states_NS())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpu_runtime act", description=__doc__)
    parser.add_argument("--adapter", type=Path, required=True, help="folder with manifest.json")
    parser.add_argument(
        "--dataset", type=Path, help="LeRobot dataset folder; default: what the adapter itself carries, after RL"
    )
    parser.add_argument("--episode", type=int, default=0)
    parser.add_argument("--base", help="name in JOYNEXUS_BASE_MODELS; default: the one in the manifest")
    return parser


if __name__ == "__main__":
    sys.exit(main())
