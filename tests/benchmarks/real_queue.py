"""The inference service on the tiny base, for ``bench_queue --real``: its service curve, and rules side by side."""

import asyncio
import time
from dataclasses import asdict, dataclass
from statistics import median

import torch

from gpu_runtime.inference.messages import PredictReply
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from tests.support.inference import Records, ask, make_service, make_slot, observation, publish, running
from tests.support.inference_world import Curve, percentile

SIDE = 64  # pixels
BATCHES = (1, 2, 4, 8, 16, 32)
TENANTS, SESSIONS, TURNS, WARM_UP_TURNS = ("a", "b", "c"), 6, 10, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RealCell:
    """One rule of the service itself: three tenants, each with busy sessions. Medians over rounds."""

    rule: str
    chunks_per_s: float  # wall time, with whatever else the machine does
    latency_p50_ms: float
    latency_p95_ms: float
    group_size: float


def tiny_base() -> Backbone:
    torch.set_num_threads(1)
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


def measure_curve(*, repetitions: int) -> Curve:
    """CPU microseconds of one packed forward by samples; the batch sizes take turns, medians."""
    base = tiny_base()
    frames = [observation(seed, side=SIDE) for seed in range(max(BATCHES))]
    taken: dict[int, list[float]] = {size: [] for size in BATCHES}
    for repetition in range(repetitions + 1):
        for size in BATCHES:
            began = time.process_time()
            base.encode(frames[:size], [{"layer:-1"}] * size)
            if repetition:  # the first round warms up
                taken[size].append((time.process_time() - began) * 1e6)
    return Curve(points=tuple((size, median(values)) for size, values in taken.items()))


def run_services(*, rounds: int) -> list[dict[str, object]]:
    """Each rule in turn, ``rounds`` times."""
    base = tiny_base()
    policy = ServedPolicy.freeze(make_slot("oft", base, side=SIDE, standardize=False).policy, base)
    sample_tokens = base.tokens(observation(0, side=SIDE, queries=4))
    rules: dict[str, dict[str, int]] = {
        "continuous": {},
        "one by one": {"batch_tokens": 1},
        "T=20 ms, B=8": {"wait_us": 20_000, "batch_tokens": 8 * sample_tokens},
        "T=20 ms, B=32": {"wait_us": 20_000, "batch_tokens": 32 * sample_tokens},
    }
    runs: dict[str, list[RealCell]] = {name: [] for name in rules}
    for _ in range(rounds):
        for name, knobs in rules.items():
            runs[name].append(asyncio.run(one_run(name, policy, knobs)))
    return [asdict(_median(name, cells)) for name, cells in runs.items()]


async def one_run(name: str, policy: ServedPolicy, knobs: dict[str, int]) -> RealCell:
    """Sessions that ask again as soon as they are answered; what the warm-up taught is kept."""
    service = make_service(Records(), **knobs)

    async def session(tenant: str, number: int, turns: int) -> list[PredictReply]:
        return [
            await service.predict(ask(tenant, seed=100 * number + turn, session_id=str(number), queries=4, side=SIDE))
            for turn in range(turns)
        ]

    async def everybody(turns: int) -> list[PredictReply]:
        sessions = [session(tenant, number, turns) for tenant in TENANTS for number in range(SESSIONS)]
        return [reply for replies in await asyncio.gather(*sessions) for reply in replies]

    for tenant in TENANTS:
        publish(service, tenant, policy)
    async with running(service):
        await everybody(WARM_UP_TURNS)
        began = time.perf_counter()
        replies = await everybody(TURNS)
        wall_s = time.perf_counter() - began
    latencies = [reply.queue_us + reply.compute_us for reply in replies]
    return RealCell(
        rule=name,
        chunks_per_s=len(latencies) / wall_s,
        latency_p50_ms=percentile(latencies, 0.5) / 1e3,
        latency_p95_ms=percentile(latencies, 0.95) / 1e3,
        group_size=sum(reply.group_size for reply in replies) / len(replies),
    )


def _median(name: str, cells: list[RealCell]) -> RealCell:
    return RealCell(
        rule=name,
        chunks_per_s=median(cell.chunks_per_s for cell in cells),
        latency_p50_ms=median(cell.latency_p50_ms for cell in cells),
        latency_p95_ms=median(cell.latency_p95_ms for cell in cells),
        group_size=median(cell.group_size for cell in cells),
    )
