"""Every figure of the summary: from the API, from what the runtime measured, and from a clean process."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from control_plane.demo.books import COMPUTE_METERS, service_books, utilization
from control_plane.demo.reload import download, reload_difference
from control_plane.demo.scenario import BASE_MODEL, Reinforcement
from control_plane.demo.stages import Stage, TenantRun
from control_plane.demo.summary import LOSS_POINTS, Success, Summary, TenantFigures
from joynexus_client import Client, Job

Curves = Mapping[str, list[float]]


def measure(runs: Sequence[TenantRun], *, started_s: float, folder: Path) -> Summary:
    """Collect the figures of finished runs; adapters are kept in ``folder``."""
    usages = [_usage(run) for run in runs]
    tenants = tuple(_figures(run, usage, folder) for run, usage in zip(runs, usages, strict=True))
    jobs = [job for run in runs for job in run.jobs.values()]
    begin, end = _together([run.jobs[Stage.MAIN] for run in runs])
    return Summary(
        wall_s=round(time.monotonic() - started_s, 1),
        environment=", ".join(dict.fromkeys(run.who.demonstrations.task for run in runs)),
        base_model=f"{BASE_MODEL} (random weights)",
        services=service_books(min(datetime.fromisoformat(job["created_at"]) for job in jobs), usages),
        utilization=utilization(begin, end, environment_processes=_environment_processes(runs)),
        tenants=tenants,
    )


def _together(jobs: Sequence[Job]) -> tuple[datetime, datetime]:
    """From when the first of these jobs started until the last one had ended."""
    starts = [job["started_at"] or job["created_at"] for job in jobs]
    ends = [job["finished_at"] for job in jobs if job["finished_at"] is not None]
    return min(map(datetime.fromisoformat, starts)), max(map(datetime.fromisoformat, ends))


def _environment_processes(runs: Sequence[TenantRun]) -> int:
    return sum(int(run.who.main.collection["processes"]) for run in runs if isinstance(run.who.main, Reinforcement))


def _figures(run: TenantRun, usage: Mapping[str, int], folder: Path) -> TenantFigures:
    main, learns_by_reward = run.jobs[Stage.MAIN], isinstance(run.who.main, Reinforcement)
    curves = _curves(run.client, main["id"])
    imitation = _curves(run.client, run.jobs[Stage.START]["id"]) if learns_by_reward else curves
    adapter = download(run.client, run.adapter(Stage.MAIN), folder)
    jobs = [run.client.jobs.get(job["id"]) for job in run.jobs.values()]
    before, after = (_success(run, stage) for stage in (Stage.BEFORE, Stage.AFTER))
    return TenantFigures(
        name=run.who.tenant,
        environment=run.who.demonstrations.task,
        head=run.who.head_name,
        algorithm=run.who.algorithm,
        must_improve=run.who.must_improve,
        samples=_meter(run.client, main["id"], "train.samples"),
        loss_first=_mean(imitation["train/loss"][:LOSS_POINTS]),
        loss_last=_mean(imitation["train/loss"][-LOSS_POINTS:]),
        action_error=_last(imitation, "eval/action_error"),
        baseline_error=_last(imitation, "eval/baseline_error"),
        group_size_mean=_mean(imitation["service/group_size"]),
        before=before,
        after=after,
        policy_versions=len(run.client.jobs.policy_versions(main["id"])),
        dropped_stale=int(_last(curves, "rollout/dropped_stale") or 0),
        env_steps=usage.get("env.steps", 0),
        predict_p95_ms=_predict_p95_ms(run, curves),
        busy_us=sum(usage.get(meter, 0) for meter in COMPUTE_METERS.values()),
        cost=sum((Decimal(job["cost"]["amount"]) for job in jobs), Decimal(0)),
        currency=main["cost"]["currency"],
        priced_usage=_priced(run.client, usage),
        adapter=str(adapter),
        reload_max_diff=reload_difference(adapter, run.recording),
    )


def _usage(run: TenantRun) -> dict[str, int]:
    """What all jobs of this demo used, by meter."""
    total: dict[str, int] = {}
    for job in run.jobs.values():
        for row in run.client.usage(job=job["id"]):
            total[row["meter"]] = total.get(row["meter"], 0) + int(row["quantity"])
    return total


def _meter(client: Client, job_id: str, meter: str) -> int:
    return sum(int(row["quantity"]) for row in client.usage(job=job_id) if row["meter"] == meter)


def _success(run: TenantRun, stage: Stage) -> Success:
    """What the evaluation's report says; the interval is the platform's own (Wilson, 95 %)."""
    (report,) = run.artifacts(stage, "evaluation")
    rate: dict[str, Any] = report["manifest"]["overall"]["success_once"]
    if rate["rate"] is None:
        raise RuntimeError(f"{run.who.tenant}: the evaluation {report['id']} counted no episode")
    return Success(rate=rate["rate"], low=rate["low"], high=rate["high"], episodes=rate["episodes"])


def _predict_p95_ms(run: TenantRun, curves: Curves) -> float | None:
    """Of the main job; a job that predicts nothing has the one of the evaluation after it."""
    seen = curves.get("service/predict_p95_ms")
    if not seen:
        seen = _curves(run.client, run.jobs[Stage.AFTER]["id"]).get("service/predict_p95_ms")
    return round(max(seen), 2) if seen else None


def _curves(client: Client, job_id: str) -> Curves:
    """Every series as plain values in step order; the demo's jobs are short enough for all points."""
    page = client.jobs.metrics(job_id, max_points=2000)
    return {series["name"]: [value for value in series["last"] if value is not None] for series in page["series"]}


def _last(curves: Curves, name: str) -> float | None:
    return curves[name][-1] if curves.get(name) else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _priced(client: Client, usage: Mapping[str, int]) -> Decimal:
    """The bill worked out again from quantities and published prices."""
    prices = {price["meter"]: price for price in reversed(client.prices())}  # newest first: the newest one stays
    return sum(
        (
            Decimal(quantity) * Decimal(prices[meter]["price"]["amount"]) / Decimal(prices[meter]["per"])
            for meter, quantity in usage.items()
        ),
        Decimal(0),
    )
