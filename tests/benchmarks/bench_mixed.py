"""What sharing costs and brings: the demo's four tenants together against each alone, one after another.

Three learn by reinforcement in simulators, one by imitation from pixels: scaled down, same seeds and the same episodes
and updates on both sides, each side in runtime processes of its own with nothing warm but the start policies. Rollouts
run ahead of training, so which version acts is a matter of timing, and episodes may differ by some steps: the last
columns say by how many. A service's busy time is what it measured itself; environment processes work side by side,
and their time is added up.
Run ``python -m tests.benchmarks.bench_mixed`` (``make bench BENCH=bench_mixed JSON=f.json``).
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from control_plane.demo.participants import MANISKILL, PURE_PYTHON
from control_plane.demo.scenario import BASE_MODEL, Imitation, Participant, Reinforcement
from gpu_runtime.protocol.messages import Event, SpanMeasured, UsageMetered
from tests.support.mixed_tenants import Tenant, policy_of, record, run_jobs
from tests.support.runtime import RuntimeProcess

SERVICES = ("training", "inference", "environment")
WINDOW_S = 24 * 3600  # the status then covers the whole life of a runtime process
HEADER = (
    f"{'arrangement':<26}{'wall s':>8}{'training':>10}{'inference':>10}{'environment':>12}"
    f"{'training':>10}{'inference':>10}{'environment':>12}{'p95 ms':>8}{'env steps':>10}{'samples':>9}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """One line of the table. ``busy_s`` by service; ``utilization``: of the wall time (and of all processes)."""

    name: str
    wall_s: float
    busy_s: dict[str, float]
    environment_processes: int
    predict_p95_ms: float | None
    env_steps: int
    samples: int

    @property
    def utilization(self) -> dict[str, float]:
        lanes = {"environment": max(1, self.environment_processes)}
        return {name: self.busy_s[name] / self.wall_s / lanes.get(name, 1) for name in SERVICES}

    def line(self) -> str:
        busy = "".join(f"{self.busy_s[name]:>{width}.1f}" for name, width in zip(SERVICES, (10, 10, 12), strict=True))
        share = "".join(
            f"{self.utilization[name]:>{width}.1%}" for name, width in zip(SERVICES, (10, 10, 12), strict=True)
        )
        p95 = "-" if self.predict_p95_ms is None else f"{self.predict_p95_ms:.1f}"
        return f"{self.name:<26}{self.wall_s:>8.1f}{busy}{share}{p95:>8}{self.env_steps:>10}{self.samples:>9}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"utilization": self.utilization}


def scaled_down(who: Participant, options: argparse.Namespace) -> Participant:
    """The same job, shorter."""
    if isinstance(who.main, Reinforcement):
        return replace(who, main=replace(who.main, training={**who.main.training, "iterations": options.iterations}))
    course = {**who.main.training, "steps": options.steps, "evaluate_every": options.steps}
    return replace(
        who,
        demonstrations=replace(who.demonstrations, episodes=options.camera_episodes),
        main=Imitation(training=course, optimizer=who.main.optimizer),
    )


class Bench:
    """Start policies and the journal live in one state folder; every arrangement gets a new process."""

    def __init__(self, state: Path, datasets: Path, participants: Sequence[Participant]) -> None:
        self._state, self._datasets = state, datasets
        self._first_seq = 0  # of the journal when the present process started
        bindings = record([who.demonstrations for who in participants], self._datasets)
        self._tenants = [Tenant(who=who, dataset=bindings[who.demonstrations]) for who in participants]

    def make_start_policies(self) -> None:
        """Imitation of few demonstrations, not measured."""
        with self._runtime() as runtime:
            learners = [tenant for tenant in self._tenants if isinstance(tenant.who.main, Reinforcement)]
            run_jobs(runtime, [tenant.start_job(f"start-{tenant.tenant_id}") for tenant in learners])
            events = runtime.events()
        self._tenants = [
            replace(tenant, policy=policy_of(events, f"start-{tenant.tenant_id}", BASE_MODEL))
            if tenant in learners
            else tenant
            for tenant in self._tenants
        ]

    def arrangements(self, repetition: int) -> Iterator[Arrangement]:
        """Each tenant alone, their sum, then all together."""
        alone = []
        for tenant in self._tenants:
            name = f"{tenant.who.demonstrations.task} {tenant.who.algorithm}"
            alone.append(self._measure(name, [tenant], f"alone-{repetition}"))
            yield alone[-1]
        yield one_after_another(alone)
        yield self._measure("together", self._tenants, f"together-{repetition}")

    def _measure(self, name: str, tenants: Sequence[Tenant], label: str) -> Arrangement:
        jobs = [tenant.main_job(f"{label}-{tenant.tenant_id}") for tenant in tenants]
        with self._runtime() as runtime:
            started_s = time.monotonic()
            run_jobs(runtime, jobs)
            wall_s = time.monotonic() - started_s
            (inference,) = [found for found in runtime.status().services if found.service == "inference"]
            events = runtime.events()
        spans = [event.body for event in self._since_start(events) if isinstance(event.body, SpanMeasured)]
        used = usage(events, {job.job_id for job in jobs})
        return Arrangement(
            name=name,
            wall_s=wall_s,
            busy_s={
                service: sum(span.busy_us for span in spans if span.service == service and span.group_size) / 1e6
                for service in SERVICES
            },
            environment_processes=sum(
                int(tenant.who.main.collection["processes"])
                for tenant in tenants
                if isinstance(tenant.who.main, Reinforcement)
            ),
            predict_p95_ms=inference.latency_p95_ms,
            env_steps=used.get("env.steps", 0),
            samples=used.get("train.samples", 0),
        )

    def _since_start(self, events: Sequence[Event]) -> list[Event]:
        return [event for event in events if event.seq > self._first_seq]

    @contextmanager
    def _runtime(self) -> Iterator[RuntimeProcess]:
        runtime = RuntimeProcess(self._state, self._datasets, status_window_s=str(WINDOW_S), min_free_bytes="0")
        runtime.start()
        self._first_seq = runtime.status().last_seq
        try:
            yield runtime
            runtime.terminate()
        finally:
            runtime.close()


def usage(events: Sequence[Event], job_ids: set[str]) -> dict[str, int]:
    """What these jobs were metered, by meter."""
    total: dict[str, int] = {}
    for event in events:
        if event.job_id in job_ids and isinstance(event.body, UsageMetered):
            for line in event.body.lines:
                total[line.meter] = total.get(line.meter, 0) + line.quantity
    return total


def one_after_another(alone: Sequence[Arrangement]) -> Arrangement:
    """The sum of runs that had the machine to themselves; the latency is that of the slowest."""
    latencies = [run.predict_p95_ms for run in alone if run.predict_p95_ms is not None]
    wall_s = sum(run.wall_s for run in alone)
    busy_s = {name: sum(run.busy_s[name] for run in alone) for name in SERVICES}
    lanes = sum(run.environment_processes * run.wall_s for run in alone) / wall_s
    return Arrangement(
        name="one after another",
        wall_s=wall_s,
        busy_s=busy_s,
        environment_processes=max(1, round(lanes)),
        predict_p95_ms=max(latencies) if latencies else None,
        env_steps=sum(run.env_steps for run in alone),
        samples=sum(run.samples for run in alone),
    )


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=4, help="policy versions of each reinforcement learner")
    parser.add_argument("--steps", type=int, default=150, help="optimizer steps of the imitator")
    parser.add_argument("--camera-episodes", type=int, default=20, help="demonstrations with pictures")
    parser.add_argument("--repeat", type=int, default=1, help="measure everything so often")
    parser.add_argument("--pure-python", action="store_true", help="environments that need no simulator of robots")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep recordings there for the next run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    return parser.parse_args()


def main() -> None:
    options = read_options()
    participants = [scaled_down(who, options) for who in (PURE_PYTHON if options.pure_python else MANISKILL)]
    machine = {"cores": os.cpu_count(), "load_average_1min": os.getloadavg()[0]}
    print(f"Four tenants, {BASE_MODEL} with random weights. {machine}")
    with tempfile.TemporaryDirectory(prefix="joynexus-bench-") as temporary:
        datasets = options.keep or Path(temporary) / "datasets"
        bench = Bench(Path(temporary) / "state", datasets, participants)
        bench.make_start_policies()
        print(f"{'':<34}{'busy s':>32}{'utilization':>32}\n{HEADER}")
        table = []
        for repetition in range(options.repeat):
            for arrangement in bench.arrangements(repetition):
                print(arrangement.line(), flush=True)
                table.append(arrangement.as_json() | {"repetition": repetition})
    if options.json:
        settings = {name: getattr(options, name) for name in ("iterations", "steps", "camera_episodes", "pure_python")}
        report = {"machine": machine, "settings": settings, "arrangements": table}
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
