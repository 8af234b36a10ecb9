"""``python -m gpu_runtime evaluate``: play an exported adapter in its environment and count its successes.

Progress goes to standard error; the last line of standard output is one JSON object. Exit status 0: evaluated (errors
of single episodes are failures in the figures); 1: cannot write; 2: refused; 3: the simulator cannot run here.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gpu_runtime.environments.base import StateKind
from gpu_runtime.environments.errors import EnvironmentLost, SimulatorError, SimulatorMissing
from gpu_runtime.environments.pool import EnvironmentPool, PoolLimits
from gpu_runtime.environments.progress import Progress
from gpu_runtime.inference.feature_handles import FeatureHandles
from gpu_runtime.inference.policy_store import PolicyStore
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.inference.step import PredictStep
from gpu_runtime.inference.usage import PredictRecord
from gpu_runtime.models.adapters import Adapter, adapter_backbone, load_adapter
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.errors import ModelError
from gpu_runtime.models.manifest import read_manifest
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.workflows.evaluate import EvaluationWorkflow, Payer
from gpu_runtime.workflows.evaluation_plan import EvaluationRefused, plan
from gpu_runtime.workflows.evaluation_protocol import SEED_MAX
from gpu_runtime.workflows.evaluation_result import EpisodeRecord, EvaluationResult
from gpu_runtime.workflows.evaluation_videos import VideoShelf
from gpu_runtime.workflows.evaluation_witness import Played, Unheard

SIMULATOR_MISSING = 3
_PAYER = Payer(tenant_id="local", job_id="evaluate", slot_id="adapter")  # nobody is billed: one user, one process


class _Ticking(Unheard):
    """Shows how far it has come."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    async def ended(self, played: Played) -> EpisodeRecord:
        self._progress.tick()
        return played.record


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; a refusal is one line on standard error."""
    options = _parser().parse_args(argv)
    if options.first_seed + options.episodes - 1 > SEED_MAX:
        print(f"evaluate: --first-seed: the last seed is above {SEED_MAX}", file=sys.stderr)
        return 2
    try:
        _check_writable(options)
        result = asyncio.run(evaluate_adapter(options))
        text = result.model_dump_json(by_alias=True)
        if options.out is not None:
            options.out.write_text(text + "\n", "utf-8")
    except (ModelError, SimulatorError, EnvironmentLost, ValueError) as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return SIMULATOR_MISSING if isinstance(error, SimulatorMissing) else 2
    except OSError as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 1
    print(text, flush=True)
    return 0


async def evaluate_adapter(options: argparse.Namespace) -> EvaluationResult:
    """Load, check, play. Raises ModelError, SimulatorError, EnvironmentLost, EvaluationRefused."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise EvaluationRefused("--device: cuda is not available on this machine, allowed: cpu")
    manifest = read_manifest(options.adapter)
    backbone = adapter_backbone(manifest, options.base, device=options.device)
    adapter = load_adapter(options.adapter, backbone, device=options.device)
    protocol = plan(
        adapter.policy,
        environment=options.env,
        seeds=tuple(range(options.first_seed, options.first_seed + options.episodes)),
        adapter_id=manifest.adapter_id,
        policy_version=manifest.training.policy_version,
        state=StateKind(options.state),
        cameras=_cameras(options.camera),
        max_steps=options.max_steps,
        executed_steps=options.execute,
        goes_on_after_success=options.go_on,
        exact=options.exact,
    )
    service = _service(adapter, backbone, options.device)
    pool = EnvironmentPool(
        PoolLimits(seats_total=options.parallel, seats_per_tenant=options.parallel, processes_warm=options.parallel)
    )
    progress = Progress("evaluate", options.episodes, "episodes", as_json=options.progress_json)
    workflow = EvaluationWorkflow(
        protocol=protocol,
        policy=adapter.policy,
        payer=_PAYER,
        service=service,
        pool=pool,
        parallel=options.parallel,
        shelf=None if options.videos is None else VideoShelf(options.videos, options.videos_per_outcome),
        witness=_Ticking(progress),
    )
    try:
        result = await _beside(service, workflow)
    finally:
        await pool.close()
    progress.finish()
    return result


async def _beside(service: InferenceService, workflow: EvaluationWorkflow) -> EvaluationResult:
    """Run the workflow while the service runs; an error of the service itself is the one that is raised."""
    serving = asyncio.create_task(service.run())
    try:
        return await workflow.run()
    finally:
        service.stop()
        await serving


def _service(adapter: Adapter, backbone: Backbone, device: str) -> InferenceService:
    """This adapter as the one version of the one slot; predictions are measured, and billed to nobody."""

    async def forget(record: PredictRecord) -> None:
        del record

    policies: PolicyStore[ServedPolicy] = PolicyStore()
    policies.open(_PAYER.tenant_id, _PAYER.slot_id)
    version = adapter.manifest.training.policy_version
    policies.publish(_PAYER.tenant_id, _PAYER.slot_id, version, ServedPolicy.freeze(adapter.policy, backbone))
    return InferenceService(policies=policies, step=PredictStep(DeviceClock(device), FeatureHandles(0)), write=forget)


def _check_writable(options: argparse.Namespace) -> None:
    """Before minutes of simulation. Raises OSError."""
    if options.videos is not None:
        options.videos.mkdir(parents=True, exist_ok=True)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        if options.out.is_dir():
            raise EvaluationRefused(f"--out: {options.out} is a folder, allowed: a file")


def _cameras(pairs: Sequence[tuple[str, str]]) -> dict[str, str] | None:
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise EvaluationRefused(f"--camera: {', '.join(keys)}; allowed: each of the policy's cameras once")
    return dict(pairs) or None


def _pair(text: str) -> tuple[str, str]:
    key, equals, name = text.partition("=")
    if not (key and equals and name):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=NAME")
    return key, name


def _integer(low: int, high: int) -> Any:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not from {low} to {high}")
        return value

    return parse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpu_runtime evaluate", description=__doc__)
    add = parser.add_argument
    add("--adapter", type=Path, required=True, help="folder with manifest.json")
    add("--env", required=True, help="environment id, for example PushCube-v1 or gym_pusht/PushT-v0")
    add("--episodes", type=_integer(1, 100_000), default=50, help="planned episodes, one seed each (default 50)")
    add("--first-seed", type=_integer(0, SEED_MAX), default=50_000, help="seeds count up from it (default 50000)")
    add("--max-steps", type=_integer(1, 1_000_000), help="default: the environment's own limit")
    add("--execute", type=_integer(1, 10_000), help="steps of a chunk to execute; default: the whole chunk")
    add("--parallel", type=_integer(1, 64), default=2, help="episodes in flight, one process each (default 2)")
    add("--state", choices=[kind.value for kind in StateKind], default=StateKind.PROPRIOCEPTION.value)
    add(
        "--camera",
        type=_pair,
        action="append",
        default=[],
        metavar="KEY=NAME",
        help="the environment's camera NAME shows what the policy knows as KEY; once per camera, default: by its name",
    )
    add("--go-on", action="store_true", help="play on after success, to tell success once from success at the end")
    add(
        "--exact", action="store_true", help="build ManiSkill worlds anew for every episode: slower, equal bit for bit"
    )
    add("--videos", type=Path, metavar="DIR", help="folder of videos; without it none are made")
    add("--videos-per-outcome", type=_integer(1, 10_000), default=2, help="of success, fail, error (default 2)")
    add("--out", type=Path, metavar="FILE", help="write the result there too")
    add("--base", help="name in JOYNEXUS_BASE_MODELS; default: the one in the manifest")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where the base and the policy run")
    add("--progress-json", action="store_true", help="progress as JSON lines on standard error")
    return parser


if __name__ == "__main__":
    sys.exit(main())
