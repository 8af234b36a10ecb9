"""Two questions about the inference queue: does the continuous rule need no tuning, and does a flood starve anyone?

1. p95 latency at several loads: the continuous rule against every fixed pair of a (T, B) grid, on the same arrivals.
   Its limit is learned in a warm-up and goes on learning. Arrivals are Poisson; a load is a share of the device's best
   measured rate.
2. A tenant that floods beside a light one: the fair rule against first in, first out.

Both in virtual time on service curves, so the machine's load does not matter; every figure is the median of
several seeds. ``--real`` adds the curve of the tiny base, measured here and now, and the service itself running on it.
Run ``python -m tests.benchmarks.bench_queue``.
"""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from gpu_runtime.scheduler.inference_queue import WINDOW_BATCHES, InferenceLimits, InferenceQueue
from gpu_runtime.scheduler.knee import Knee, KneeSettings
from tests.support.inference_world import Client, Curve, FifoQueue, InferenceWorld, percentile

ROOMY = InferenceLimits(per_session=4, per_tenant=1 << 30, total=1 << 30)
CURVES = {
    "2M, CPU": Curve(
        points=tuple((n, ms * 10_000) for n, ms in ((1, 1), (2, 1.61), (4, 2.52), (8, 4.34), (16, 8.14), (32, 16.9)))
    ),
    "flat to 8": Curve(points=((1, 10_000.0), (8, 10_000.0), (16, 20_000.0), (32, 40_000.0))),
}
"""By samples, microseconds. The first was measured on a CPU (its unit is arbitrary), the second is an assumed GPU."""

LOADS = (0.1, 0.3, 0.5, 0.7, 0.85, 0.95)
WAITS, LIMITS = (0.25, 0.5, 1.0, 2.0), (2, 4, 8, 16, 32)  # T in units of one sample's time, B in samples
UNIT_TOKENS = 1  # one token = one sample in virtual time


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """``wait_us`` T and ``batch`` B; None: the continuous rule with its learned limit."""

    name: str
    wait_us: int = 0
    batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyCell:
    """One rule at one load, in units of the time of a lone sample."""

    curve: str
    load: float
    rule: str
    p95: float
    mean_batch: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodCell:
    """One rule, one tenant of a flooded device."""

    curve: str
    rule: str
    tenant: str
    answers_per_s: float
    wait_p50_ms: float
    wait_p95_ms: float
    mean_batch: float


def rules(curve: Curve) -> list[Rule]:
    """The continuous rule first, then the grid."""
    unit_us = curve.busy_us(1)
    grid = [Rule(name=f"T={t:g} B={b}", wait_us=round(t * unit_us), batch=b) for t in WAITS for b in LIMITS]
    return [Rule(name="continuous"), *grid]


def learned_knee(curve: Curve) -> Knee:
    """What a second of full load has taught."""
    knee = Knee(KneeSettings(floor_tokens=1, ceiling_tokens=64))
    queue = InferenceQueue(ROOMY, batch_limit_tokens=knee.limit_tokens, window_us=curve.busy_us(1))
    busy = [Client(tenant_id="warm-up", sessions=128)]
    InferenceWorld(queue=queue, curve=curve, clients=busy, knee=knee).run(100 * curve.busy_us(8))
    return knee


def fair_world(rule: Rule, curve: Curve, clients: list[Client], seed: int) -> InferenceWorld:
    """The fair queue under one rule; D is the same number of full batches in either case."""
    knee = learned_knee(curve) if rule.batch is None else None
    limit = rule.batch if knee is None else knee.limit_tokens
    assert limit is not None
    window_us = WINDOW_BATCHES * curve.busy_us(limit)
    queue = InferenceQueue(ROOMY, batch_limit_tokens=limit, window_us=window_us, wait_us=rule.wait_us)
    return InferenceWorld(queue=queue, curve=curve, clients=clients, seed=seed, knee=knee)


def fifo_world(curve: Curve, clients: list[Client], seed: int) -> InferenceWorld:
    """First in, first out, as continuous and with the same learned limit."""
    knee = learned_knee(curve)
    queue = FifoQueue(batch_limit_tokens=knee.limit_tokens)
    return InferenceWorld(queue=queue, curve=curve, clients=clients, seed=seed, knee=knee)


def latency(name: str, curve: Curve, load: float, rule: Rule, *, seeds: range, requests: int) -> LatencyCell:
    """Median over seeds of the p95 from arrival to answer."""
    rate_per_s = load * curve.best_rate() * 1e6 / UNIT_TOKENS
    clients = [Client(tenant_id=f"t{n}", rate_per_s=rate_per_s / 4) for n in range(4)]
    until_us = round(requests / rate_per_s * 1e6)
    p95s, batches = [], []
    for seed in seeds:
        world = fair_world(rule, curve, clients, seed).run(until_us)
        values = [value for line in world.latency_us.values() for value in line]
        p95s.append(percentile(values, 0.95) / curve.busy_us(1))
        batches.append(sum(world.batches) / len(world.batches))
    return LatencyCell(curve=name, load=load, rule=rule.name, p95=median(p95s), mean_batch=median(batches))


def latency_cells(curves: dict[str, Curve], *, seeds: range, requests: int) -> Iterator[LatencyCell]:
    for name, curve in curves.items():
        for load in LOADS:
            for rule in rules(curve):
                yield latency(name, curve, load, rule, seeds=seeds, requests=requests)


def flood_cells(curves: dict[str, Curve], *, seeds: range, seconds: int) -> Iterator[FloodCell]:
    """256 busy sessions beside two that think for twenty samples' time."""
    for name, curve in curves.items():
        clients = [
            Client(tenant_id="flooding", sessions=256),
            Client(tenant_id="light", sessions=2, think_us=20 * curve.busy_us(1)),
        ]
        worlds = {
            "fair": [fair_world(Rule(name="continuous"), curve, clients, seed) for seed in seeds],
            "first in, first out": [fifo_world(curve, clients, seed) for seed in seeds],
        }
        for rule, runs in worlds.items():
            for world in runs:
                world.run(seconds * 1_000_000)
            for tenant in ("flooding", "light"):
                yield flood_cell(name, rule, tenant, runs, seconds)


def flood_cell(curve: str, rule: str, tenant: str, worlds: list[InferenceWorld], seconds: int) -> FloodCell:
    waits = [[wait / 1e3 for wait in world.waits_us[tenant]] for world in worlds]
    return FloodCell(
        curve=curve,
        rule=rule,
        tenant=tenant,
        answers_per_s=median(len(line) / seconds for line in waits),
        wait_p50_ms=median(percentile(line, 0.5) for line in waits),
        wait_p95_ms=median(percentile(line, 0.95) for line in waits),
        mean_batch=median(sum(world.batches) / len(world.batches) for world in worlds),
    )


def best_single(table: dict[tuple[float, str], LatencyCell], names: list[str]) -> str:
    """The pair whose worst disadvantage over all loads, against the best pair of each load, is smallest."""
    best = {load: min(table[load, name].p95 for name in names) for load in LOADS}
    return min(names, key=lambda name: max(table[load, name].p95 / best[load] for load in LOADS))


def print_latency(cells: list[LatencyCell]) -> None:
    """Continuous, the best of the grid at this load, and the one pair that is best over all loads of its curve."""
    for curve in dict.fromkeys(cell.curve for cell in cells):
        table = {(cell.load, cell.rule): cell for cell in cells if cell.curve == curve}
        names = [name for name in dict.fromkeys(rule for _, rule in table) if name != "continuous"]
        single = best_single(table, names)
        print(f"\n{curve}: p95 latency, in units of a lone sample's time")
        header = f"{'load':>6}{'continuous':>12}{'batch':>7}{'best of grid':>14}{'':>14}"
        print(f"{header}{'best single pair':>18}{single:>14}")
        for load in LOADS:
            own = table[load, "continuous"]
            best = min((table[load, name] for name in names), key=lambda cell: cell.p95)
            print(
                f"{load:>6}{own.p95:>12.2f}{own.mean_batch:>7.1f}{best.p95:>14.2f}{best.rule:>14}"
                f"{table[load, single].p95:>18.2f}"
            )


def print_flood(cells: list[FloodCell]) -> None:
    print(f"\n{'curve':<14}{'rule':<22}{'tenant':<10}{'answers/s':>10}{'wait p50 ms':>13}{'p95 ms':>9}{'batch':>7}")
    for cell in cells:
        print(
            f"{cell.curve:<14}{cell.rule:<22}{cell.tenant:<10}{cell.answers_per_s:>10.1f}"
            f"{cell.wait_p50_ms:>13.1f}{cell.wait_p95_ms:>9.1f}{cell.mean_batch:>7.1f}"
        )


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, short runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every cell there as well")
    parser.add_argument("--real", action="store_true", help="measure the tiny base, and run the service itself on it")
    return parser.parse_args()


def main() -> None:
    options = read_options()
    seeds = range(1 if options.quick else 3)
    curves, real = dict(CURVES), None
    if options.real:
        from tests.benchmarks.real_queue import measure_curve, run_services

        curves["tiny, here"] = measure_curve(repetitions=3 if options.quick else 9)
        real = run_services(rounds=1 if options.quick else 5)
    machine = {"cores": os.cpu_count(), "load_average_1min": os.getloadavg()[0]}
    latencies = list(latency_cells(curves, seeds=seeds, requests=1_500 if options.quick else 4_000))
    print_latency(latencies)
    floods = list(flood_cells(curves, seeds=seeds, seconds=10 if options.quick else 20))
    print_flood(floods)
    if real is not None:
        print(f"\nThe service itself on the tiny base: {json.dumps(real, indent=2)}")
    if options.json:
        document = {
            "machine": machine,
            "curves": {name: curve.points for name, curve in curves.items()},
            "latency": [asdict(cell) for cell in latencies],
            "flood": [asdict(cell) for cell in floods],
            "real": real,
        }
        options.json.write_text(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
