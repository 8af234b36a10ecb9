"""The demo from the first recording to the last check. Tenants act through the public API only."""

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from django.db.models import Sum

from control_plane.conf import environment as env
from control_plane.demo.labs import Lab
from control_plane.demo.progress import Progress, say
from control_plane.demo.scenario import BASE_MODEL, Participant
from control_plane.demo.summary import LOSS_POINTS, Summary, TenantFigures
from jobs.models import DeviceSpan
from joynexus_client import Client, Job

VALIDATION_LIMIT_S = 180.0
POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """One participant's job on the platform."""

    who: Participant
    client: Client
    recording: Path
    version_id: str
    job: Job


def submit_all(recordings: dict[Participant, Path], labs: dict[str, Lab], url: str) -> list[Submitted]:
    """Upload, wait for validation, then submit the jobs together."""
    clients = {who: Client(url, labs[who.email].api_key) for who in recordings}
    versions = {who: _dataset_ready(clients[who], who, recording) for who, recording in recordings.items()}
    submitted = []
    for who in recordings:
        job = clients[who].jobs.submit(who.specification(versions[who]))
        say(f"  {who.tenant}: job {job['id']} submitted, {who.head_name} head")
        submitted.append(
            Submitted(who=who, client=clients[who], recording=recordings[who], version_id=versions[who], job=job)
        )
    return submitted


def _dataset_ready(client: Client, who: Participant, recording: Path) -> str:
    """Id of a ready version of the recording: the one of an earlier run, or a new upload."""
    for dataset in client.datasets.list():
        if dataset["name"] == who.dataset_name:
            ready = [version for version in dataset["versions"] if version["state"] == "ready"]
            if ready:
                return str(ready[0]["id"])
    started_s = time.monotonic()
    version = client.datasets.upload(recording, name=who.dataset_name)
    version = client.datasets.wait_ready(version["id"], timeout_s=VALIDATION_LIMIT_S)
    summary = version["summary"] or {}
    say(
        f"  {who.tenant}: {who.dataset_name}: {summary['episodes']} episodes, {summary['frames']} frames"
        f" validated in {time.monotonic() - started_s:.0f} s"
    )
    return str(version["id"])


def follow(submitted: Sequence[Submitted]) -> list[Job]:
    """Wait for every job to end, with progress. Returns the jobs as they ended."""
    progress = {item.who: Progress(f"{item.who.tenant}, {item.who.head_name}", "steps") for item in submitted}
    ended: dict[str, Job] = {}
    while len(ended) < len(submitted):
        for item in submitted:
            job = item.client.jobs.get(item.job["id"])
            if job["id"] in ended:
                continue
            if job["state"] in {"succeeded", "failed", "cancelled"}:
                ended[job["id"]] = job
                say(f"  {item.who.tenant}: {job['state']} {job['message']}".rstrip())
            else:
                progress[item.who].update(job["step"], max(job["total_steps"], 1), job["state"])
        time.sleep(POLL_S)
    return [ended[item.job["id"]] for item in submitted]


def measure(submitted: Sequence[Submitted], jobs: Sequence[Job], *, started_s: float, folder: Path) -> Summary:
    """Collect every figure of the summary from the API, the measured device steps and a clean process."""
    tenants = tuple(_figures(item, job, folder) for item, job in zip(submitted, jobs, strict=True))
    since = min(datetime.fromisoformat(job["created_at"]) for job in jobs)
    spans = DeviceSpan.objects.filter(started_at__gte=since).aggregate(
        busy=Sum("busy_us"), overhead=Sum("overhead_us")
    )
    return Summary(
        wall_s=round(time.monotonic() - started_s, 1),
        environment=", ".join(dict.fromkeys(item.who.task for item in submitted)),
        base_model=f"{BASE_MODEL} (random weights)",
        busy_us=spans["busy"] or 0,
        overhead_us=spans["overhead"] or 0,
        tenants=tenants,
    )


def _figures(item: Submitted, job: Job, folder: Path) -> TenantFigures:
    if job["state"] != "succeeded":
        raise RuntimeError(f"{item.who.tenant}: job {job['id']} {job['state']}: {job['reason']} {job['message']}")
    curves = _curves(item.client, job["id"])
    losses = curves["train/loss"]
    usage = {row["meter"]: row["quantity"] for row in item.client.usage(job=job["id"])}
    adapter = _download(item, job, folder)
    return TenantFigures(
        name=item.who.tenant,
        head=item.who.head_name,
        samples=usage["train.samples"],
        loss_first=_mean(losses[:LOSS_POINTS]),
        loss_last=_mean(losses[-LOSS_POINTS:]),
        action_error=curves["eval/action_error"][-1],
        baseline_error=curves["eval/baseline_error"][-1],
        group_size_mean=_mean(curves["service/group_size"]),
        busy_us=usage["train.compute_us"],
        cost=Decimal(job["cost"]["amount"]),
        currency=job["cost"]["currency"],
        priced_usage=_priced(item.client, usage),
        adapter=str(adapter),
        reload_max_diff=_reload(adapter, item.recording),
    )


def _curves(client: Client, job_id: str) -> dict[str, list[float]]:
    """Every series as plain values in step order; the demo's jobs are short enough for all points."""
    page = client.jobs.metrics(job_id, max_points=2000)
    return {series["name"]: [value for value in series["last"] if value is not None] for series in page["series"]}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _priced(client: Client, usage: dict[str, int]) -> Decimal:
    """The bill worked out again from quantities and published prices."""
    prices = {price["meter"]: price for price in reversed(client.prices())}  # newest first: the newest one stays
    return sum(
        (
            Decimal(quantity) * Decimal(prices[meter]["price"]["amount"]) / Decimal(prices[meter]["per"])
            for meter, quantity in usage.items()
        ),
        Decimal(0),
    )


def _download(item: Submitted, job: Job, folder: Path) -> Path:
    artifact = next(a for a in item.client.jobs.artifacts(job["id"]) if a["kind"] == "adapter")
    target = folder / job["id"]
    target.mkdir(parents=True, exist_ok=True)
    archive = item.client.artifacts.download(artifact["id"], to=target / "adapter.zip")
    with zipfile.ZipFile(archive) as content:
        content.extractall(target / "adapter")
    return target / "adapter"


def _reload(adapter: Path, recording: Path) -> float:
    """Largest difference between the live policy's actions and the adapter's, loaded in a clean process."""
    manifest = json.loads((adapter / "manifest.json").read_text())
    episode = str(manifest["probe"]["episode"])
    argv = [sys.executable, "-m", "gpu_runtime", "act", "--adapter", str(adapter), "--dataset", str(recording)]
    done = subprocess.run(
        [*argv, "--episode", episode], cwd=env.REPOSITORY, capture_output=True, text=True, check=False
    )
    if not done.stdout.strip():
        raise RuntimeError(f"act ended with status {done.returncode}: {done.stderr[-2000:]}")
    report = json.loads(done.stdout.strip().splitlines()[-1])
    if "error" in report:
        raise RuntimeError(f"act: {report['error']}")
    return float(report["max_difference"])


def serve_until_interrupted(url: str, labs: dict[str, Lab], alive: Callable[[], bool]) -> None:
    """Keep the platform up for a look around."""
    say(f"\nThe console is at {url}. Log in as:")
    for lab in labs.values():
        say(f"  {lab.email}  {lab.password}")
    say("Ctrl-C stops everything.")
    while alive():
        time.sleep(1.0)
    raise RuntimeError(f"the platform ended; its log is in {os.fspath(env.state_dir() / 'logs')}")
