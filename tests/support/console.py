"""What a runtime tells of reinforcement learning and of evaluations, as the console's tests need it."""

import hashlib
import io
import math
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np

from gpu_runtime.environments.base import StateKind
from gpu_runtime.protocol.messages import ArtifactPublished, MetricsRecorded, SpanMeasured
from gpu_runtime.workflows.evaluation_protocol import EvaluationProtocol
from gpu_runtime.workflows.evaluation_report import EvaluationReport
from gpu_runtime.workflows.evaluation_result import Cause, EpisodeRecord, EvaluationResult
from tests.support.factories import make_summary

ADAPTER = "adapter-of-a-test"
TASKS = ("PushCube-v1", "libero_spatial/0", "libero_spatial/1")


def adapter_manifest(*, actions: int = 2, horizon: int = 4) -> dict[str, Any]:
    """As far as admission reads it."""
    names = [f"a{i}" for i in range(actions)]
    return {
        "adapter_id": ADAPTER,
        "base_model": {"name": "tiny-qwen3-vl", "revision": "seed-0"},
        "head": {"type": "mlp"},
        "action": {"horizon": horizon, "names": names},
        "state": {"names": ["s0", "s1", "s2"]},
        "spec": {"dataset": {"id": "unused", "image_size": 64}},
        "dataset_schema": make_summary(action_dim=actions)["schema"],
    }


def rl_spec(artifact: str, **fields: Any) -> dict[str, Any]:
    """PPO on PushCube, 60 policy versions."""
    spec: dict[str, Any] = {
        "kind": "rl",
        "name": "push further",
        "policy": {"artifact": artifact},
        "environment": {"id": "PushCube-v1", "state": "privileged"},
        "algorithm": {"type": "ppo", "target_kl": 0.03},
        "exploration": {"type": "gaussian"},
        "executed_steps": 4,
        "collection": {"seats": 4, "episodes": 16, "max_staleness": 2},
        "training": {"iterations": 60},
    }
    return spec | fields


def evaluation_spec(artifact: str, *, tasks: Sequence[str] = TASKS[:1], **fields: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "kind": "evaluation",
        "name": "how good is it",
        "policy": {"artifact": artifact},
        "environments": [{"id": task} for task in tasks],
        "episodes": 20,
        "goes_on_after_success": True,
    }
    return spec | fields


def rollout_spec(artifact: str, **fields: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "kind": "rollout",
        "name": "more demonstrations",
        "policy": {"artifact": artifact},
        "environment": {"id": "PushCube-v1"},
        "dataset_name": "pushed by itself",
        "episodes": 10,
        "only_successes": True,
    }
    return spec | fields


def rl_metrics(version: int, *, seed: int = 7) -> MetricsRecorded:
    """Plausible figures of one update; the KL of version 9 is not a number."""
    noise = np.random.default_rng([seed, version])
    learned = 1 - math.exp(-version / 18)
    share = float(np.clip(0.12 + 0.7 * learned + noise.normal(0, 0.05), 0, 1))
    values = {
        "rollout/return": 4 + 22 * learned + noise.normal(0, 1.2),
        "rollout/shaped_return": 0.2 + 0.9 * learned + noise.normal(0, 0.05),
        "rollout/success_once": share,
        "rollout/success_at_end": share * 0.93,
        "rollout/episode_steps": 50 - 24 * learned + noise.normal(0, 1.5),
        "rollout/episodes": 16.0,
        "rollout/distinct_starts": float(noise.integers(13, 17)),
        "rollout/solved_at_reset": 0.0,
        "rollout/env_steps": version * 560.0,
        "rollout/env_steps_per_s": 118 + noise.normal(0, 6),
        "rollout/staleness_mean": float(noise.uniform(0.4, 1.1)),
        "rollout/staleness_max": float(noise.integers(1, 3)),
        "rollout/staleness/0": float(noise.integers(40, 90)),
        "rollout/staleness/1": float(noise.integers(70, 120)),
        "rollout/dropped_stale": float(version // 14),
        "rollout/dropped_lost": float(version // 40),
        "train/policy_loss": -0.01 + noise.normal(0, 0.006),
        "train/value_loss": 0.4 * math.exp(-version / 15) + abs(noise.normal(0, 0.02)),
        "train/entropy": 2.4 - 1.1 * learned,
        "train/approx_kl": math.nan if version == 9 else abs(noise.normal(0.011, 0.005)),
        "train/reference_kl": 0.02 * version,
        "train/clip_fraction": abs(noise.normal(0.11, 0.03)),
        "train/dual_clip_fraction": 0.0,
        "train/explained_variance": 0.85 * learned + noise.normal(0, 0.04),
        "train/log_prob_gap": abs(noise.normal(1e-6, 4e-7)),
        "train/grad_norm_actor": abs(noise.normal(0.7, 0.2)),
        "train/grad_norm_critic": abs(noise.normal(1.4, 0.4)),
        "service/predict_p95_ms": 42 + noise.normal(0, 5),
        "service/predict_group_size": 3.1 + noise.normal(0, 0.4),
        "service/group_size": float(noise.integers(1, 5)),
        "service/busy_share": 0.34 + noise.normal(0, 0.05),
    }
    return MetricsRecorded(step=version, values={name: float(value) for name, value in values.items()})


def episodes_of(task: str, count: int, *, first_seed: int = 50_000) -> list[EpisodeRecord]:
    """Two of three succeed; seed 4 of them is lost, seed 5 was solved at reset."""
    records = []
    for index in range(count):
        cause = Cause.SUCCESS if index % 3 else Cause.MAX_STEPS
        cause = {4: Cause.ERROR, 5: Cause.SOLVED_AT_RESET}.get(index, cause)
        once = cause is Cause.SUCCESS
        records.append(
            EpisodeRecord(
                seed=first_seed + index,
                initial_state=hashlib.sha256(f"{task}{index}".encode()).hexdigest(),
                cause=cause,
                success_once=once,
                success_at_end=once and index != 7,
                steps=0 if cause is Cause.SOLVED_AT_RESET else 20 + index if once else 50,
                return_=round(0.9 + index / 100, 3) if once else 0.2,
                predict=None,
                error="environment_lost: a step took longer than 30 s" if cause is Cause.ERROR else None,
            )
        )
    return records


def evaluation_report(tasks: Sequence[str] = TASKS[:1], *, episodes: int = 20) -> EvaluationReport:
    """In the runtime's own form, from its own code: a change of form fails the console's tests."""
    results = []
    for task in tasks:
        records = episodes_of(task, episodes)
        protocol = EvaluationProtocol(
            environment=task,
            state=StateKind.PROPRIOCEPTION,
            control_mode="pd_ee_delta_pos",
            cameras=("observation.images.base",),
            render_size=128,
            image_size=64,
            seeds=tuple(record.seed for record in records),
            max_steps=50,
            executed_steps=4,
            goes_on_after_success=True,
            adapter_id=ADAPTER,
            policy_version=60,
            packages={"joynexus": "0.3.0", "mani_skill": "3.0.0"},
        )
        results.append(EvaluationResult.of(protocol, records, predict_s=[0.02, 0.05], group_sizes=[2, 3], wall_s=31.0))
    return EvaluationReport.of(results)


def evaluation_metrics(tasks: Sequence[str] = TASKS[:1], *, episodes: int = 20) -> Iterator[MetricsRecorded]:
    """Running figures, one step per episode."""
    successes = counted = 0
    for step, record in enumerate((record for task in tasks for record in episodes_of(task, episodes)), 1):
        counted += record.cause is not Cause.SOLVED_AT_RESET
        successes += record.success_once
        values = {"eval/episodes": step, "eval/counted": counted, "eval/success_rate": successes / max(1, counted)}
        values |= {"eval/return": 0.6 + step / 200, "eval/episode_steps": 34 - step / 10}
        values |= {"service/predict_p95_ms": 38 + step % 5, "service/predict_group_size": 1 + step % 3}
        yield MetricsRecorded(step=step, values={name: float(value) for name, value in values.items()})


@dataclass(frozen=True, slots=True)
class Published:
    """An artifact and the bytes the gateway serves."""

    told: ArtifactPublished
    content: bytes


def published(kind: str, artifact_id: str, content: bytes, media_type: str, **fields: Any) -> Published:
    digest = hashlib.sha256(content).hexdigest()
    known: dict[str, Any] = {"name": kind, "policy_version": 60, "manifest": {}} | fields
    told = ArtifactPublished.model_validate(
        {"artifact_id": artifact_id, "kind": kind, "media_type": media_type, "bytes": len(content), "sha256": digest}
        | {"files": ()}
        | known
    )
    return Published(told, content)


def adapter_of(job_id: str, *, version: int = 60) -> Published:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("adapter.safetensors", b"weights")
    manifest = adapter_manifest()
    return published(
        *("adapter", f"{job_id}-1-v{version}", archive.getvalue(), "application/zip"),
        policy_version=version,
        manifest=manifest,
    )


def report_of(job_id: str, tasks: Sequence[str] = TASKS[:1], *, episodes: int = 20) -> Published:
    report = evaluation_report(tasks, episodes=episodes)
    content = report.model_dump_json(by_alias=True).encode()
    return published(*("evaluation", f"{job_id}-1-evaluation", content, "application/json"), manifest=report.summary())


def video_of(job_id: str, content: bytes, *, seed: int, outcome: str, task: str = TASKS[0]) -> Published:
    manifest = {
        **{"task": task, "seed": seed, "outcome": outcome, "success_once": outcome == "success"},
        **{"steps": 31, "return": 0.91, "policy_version": 60, "adapter_id": ADAPTER, "protocol_hash": "0" * 64},
        "instruction": "Push the cube to the goal.",
    }
    return published(
        *("video", f"{job_id}-1-video-{task.replace('/', '-')}-{seed}", content, "video/mp4"),
        name=f"{task}_seed{seed}_{outcome}",
        manifest=manifest,
    )


def make_film(path: Path, *, seconds: int = 6, side: int = 128, hue: int = 0) -> bytes:
    """A small H.264 film in which a square moves; key frames each second, so that seeking is quick."""
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as out:
        stream = out.add_stream("libx264", rate=10)
        stream.width = stream.height = side
        stream.pix_fmt = "yuv420p"
        stream.gop_size = 10
        for index in range(seconds * 10):
            picture = np.full((side, side, 3), (196, 188, 176), np.uint8)
            left = 8 + index * (side - 48) // (seconds * 10)
            picture[side // 2 : side // 2 + 28, left : left + 28] = (200 - hue, 90, 60 + hue)
            for packet in stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)
    return path.read_bytes()


def service_spans(tenant_id: str, now_us: int, *, minutes: int = 20) -> Iterator[SpanMeasured]:
    """Half the time of each service is this tenant's, the other half somebody else's."""
    busy = {"training": 5_000_000, "inference": 3_400_000, "environment": 9_000_000}
    for index in range(minutes * 4):
        for place, (service, busy_us) in enumerate(busy.items()):
            wave_us = int(busy_us * (1 + 0.25 * math.sin(index / 5 + place)))
            own = wave_us // 2
            yield SpanMeasured(
                span_id=f"{service}-{index}",
                service=service,
                started_at_us=now_us - (index + 1) * 15_000_000,
                busy_us=wave_us,
                overhead_us=0,
                shares={tenant_id: own, "00000000-0000-0000-0000-00000000beef": wave_us - own},
                group_size=1 + (index + place) % 4,
                samples=8,
                tokens=64,
            )
