"""``python -m gpu_runtime record``: a scripted expert's demonstrations as a LeRobot v3.0 dataset."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_runtime.data.recorder import Recorder
from gpu_runtime.data.recording.checks import RecordingError, check_path, check_schema
from gpu_runtime.environments.base import SIZE_MAX, SIZE_MIN, Environment, StateKind, without_cameras
from gpu_runtime.environments.demonstrations import Demonstration, Outcome, demonstrations, film, note
from gpu_runtime.environments.errors import SimulatorError, SimulatorMissing
from gpu_runtime.environments.experts import expert_for
from gpu_runtime.environments.progress import Progress
from gpu_runtime.environments.registry import make_environment
from gpu_runtime.protocol.schema import DatasetSchema

NO_CAMERAS = "none"
SIMULATOR_MISSING = 3  # exit status: asked rightly, but not on this machine


def _integer(low: int, high: int) -> Any:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not from {low} to {high}")
        return value

    return parse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpu_runtime record", description=__doc__)
    parser.add_argument("--env", required=True, help="environment id, for example PushCube-v1 or gym_pusht/PushT-v0")
    parser.add_argument("--episodes", type=_integer(1, 100_000), required=True, help="solved episodes to keep")
    parser.add_argument("--out", type=Path, required=True, help="folder to create; must not exist")
    parser.add_argument(
        "--cameras",
        help=f"comma-separated views, for example base,hand; default: the task's usual ones; {NO_CAMERAS}: state only",
    )
    parser.add_argument(
        "--state",
        choices=[kind.value for kind in StateKind],
        default=StateKind.PROPRIOCEPTION.value,
        help="what the state vector tells",
    )
    parser.add_argument(
        "--size", type=_integer(SIZE_MIN, SIZE_MAX), default=64, help="height and width of each view in pixels"
    )
    parser.add_argument("--seed", type=_integer(0, 2**31), default=0, help="first reset seed; tries count up from it")
    parser.add_argument("--progress-json", action="store_true", help="progress as JSON lines on standard error")
    return parser


def _one_thread() -> None:
    """Tensors of one robot are tiny: more threads only fight over cores."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _simulate(
    environment: Environment, options: argparse.Namespace, outcomes: dict[Outcome, int]
) -> list[Demonstration]:
    progress = Progress("simulate", options.episodes, "episodes", as_json=options.progress_json)
    kept = []
    source = demonstrations(
        environment, expert_for(options.env), episodes=options.episodes, seed=options.seed, outcomes=outcomes
    )
    for demonstration in source:
        kept.append(demonstration)
        progress.tick()
    progress.finish()
    return kept


def _cameras(options: argparse.Namespace) -> tuple[str, ...] | None:
    """None: the task's usual ones; (): none."""
    if options.cameras == NO_CAMERAS:
        return ()
    return tuple(options.cameras.split(",")) if options.cameras else None


def _schema(environment: Environment, options: argparse.Namespace) -> DatasetSchema:
    schema = environment.schema()
    return without_cameras(schema) if options.cameras == NO_CAMERAS else schema


def _write(
    environment: Environment, schema: DatasetSchema, kept: Sequence[Demonstration], options: argparse.Namespace
) -> None:
    description = {
        "environment": options.env,
        "source": "scripted Markov expert, clean actions, simulated physics and cameras"
        if schema.cameras
        else "scripted Markov expert, clean actions, simulated physics, no cameras",
        "seeds": [demonstration.seed for demonstration in kept],
        "success": "every episode ends with the step that first succeeded",
    }
    frames = sum(len(demonstration.actions_NA) for demonstration in kept)
    progress = Progress("render" if schema.cameras else "write", frames, "frames", as_json=options.progress_json)
    with Recorder(options.out, schema, round(schema.control_hz), description=description) as recorder:
        for demonstration in kept:
            if schema.cameras:
                film(environment, demonstration, recorder, progress.tick)
            else:
                note(environment, demonstration, recorder, progress.tick)
    progress.finish()


def record(options: argparse.Namespace) -> dict[str, Any]:
    """Record as asked; returns the counts of the final line."""
    started_s = time.monotonic()
    expert_for(options.env)
    check_path(options.out)
    environment = make_environment(
        options.env, cameras=_cameras(options), size=options.size, state=StateKind(options.state)
    )
    schema = _schema(environment, options)
    check_schema(schema, round(schema.control_hz))
    _one_thread()
    outcomes: dict[Outcome, int] = {}
    try:
        kept = _simulate(environment, options, outcomes)
        _write(environment, schema, kept, options)
    finally:
        environment.close()
    return {
        "episodes": len(kept),
        "frames": sum(len(demonstration.actions_NA) for demonstration in kept),
        "tried": sum(outcomes.values()),
        "failed": outcomes.get(Outcome.FAILED, 0),
        "solved_at_reset": outcomes.get(Outcome.SOLVED_AT_RESET, 0),
        "wall_s": round(time.monotonic() - started_s, 2),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the last line of standard output is one JSON object.

    Status 1: cannot write; 2: refused; 3: the simulator cannot run on this machine.
    """
    options = _parser().parse_args(argv)
    try:
        counts = record(options)
    except (SimulatorError, RecordingError) as error:
        print(f"record: {error}", file=sys.stderr)
        return SIMULATOR_MISSING if isinstance(error, SimulatorMissing) else 2
    except OSError as error:  # a full disk, a folder that may not be written
        print(f"record: cannot write {options.out}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(counts), flush=True)
    return 0
