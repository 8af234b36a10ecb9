"""Several jobs watched at once: one line for each every few seconds that says how it goes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from control_plane.demo.progress import Progress, say
from joynexus_client import Client, Job

POLL_S = 1.0
_ENDED = frozenset({"succeeded", "failed", "cancelled"})
# By kind: what one progress unit is, and which curves tell a person how it goes, with their words and format.
_UNITS = {"sft": "steps", "rl": "updates", "evaluation": "episodes", "rollout": "episodes"}
_NOTES = {
    "sft": {"train/loss": "loss {:.4f}"},
    "rl": {
        "rollout/return": "return {:.2f}",
        "rollout/success_once": "success {:.0%} while exploring",
        "train/approx_kl": "KL {:.3f}",
        "rollout/staleness_mean": "staleness {:.1f}",
        "rollout/env_steps": "{:.0f} environment steps",
    },
    "evaluation": {"eval/success_rate": "success {:.0%}"},
    "rollout": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A submitted job and how its lines begin."""

    label: str
    client: Client
    job: Job


def follow(followed: Sequence[Followed]) -> list[Job]:
    """Wait for every job to end, with progress. Returns the jobs as they ended."""
    progress = [Progress(item.label, _UNITS[item.job["kind"]]) for item in followed]
    ended: dict[int, Job] = {}
    while len(ended) < len(followed):
        for number, item in enumerate(followed):
            if number in ended:
                continue
            job = item.client.jobs.get(item.job["id"])
            if job["state"] in _ENDED:
                ended[number] = job
                say(f"  {item.label}: {job['state']} {job['message']}".rstrip())
            elif progress[number].due():
                progress[number].update(job["step"], max(job["total_steps"], 1), f"{job['state']}{_note(item)}")
        time.sleep(POLL_S)
    return [ended[number] for number in range(len(followed))]


def _note(item: Followed) -> str:
    """The newest values of the curves that tell most."""
    formats = _NOTES[item.job["kind"]]
    if not formats:
        return ""
    page = item.client.jobs.metrics(item.job["id"], series=tuple(formats), max_points=1)
    newest = {series["name"]: series["last"][-1] for series in page["series"] if series["last"]}
    return "".join(f", {text.format(newest[name])}" for name, text in formats.items() if newest.get(name) is not None)
