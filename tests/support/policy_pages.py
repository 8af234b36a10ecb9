"""A lab with policies, evaluations of them and films, for the tests of pages."""

import re
from collections.abc import Sequence
from typing import Any

from gpu_runtime.protocol.messages import WorkloadState
from jobs.models import Artifact, Job
from jobs.selectors.jobs import artifact_list
from jobs.services.dispatch import job_dispatch
from jobs.services.submit import job_submit
from tests.support import console
from tests.support.jobs import relay_all, reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

Key = tuple[str, int]


def publish(runtime: InMemoryRuntime, key: Key, published: console.Published) -> None:
    runtime.artifacts[published.told.artifact_id] = published.content
    runtime.tell(*key, published.told)


def trained(person: Person, runtime: InMemoryRuntime, *, name: str = "weak start", version: int = 200) -> Artifact:
    """A policy that an SFT job of the person's published."""
    job, key = start_job(person, runtime, name=name)
    publish(runtime, key, console.adapter_of(str(job.pk), version=version))
    runtime.tell_state(*key, WorkloadState.SUCCEEDED, step=version, total_steps=version)
    relay_all(runtime)
    return artifact_list(person.tenant, job.pk).get()


def start(person: Person, runtime: InMemoryRuntime, spec: dict[str, Any]) -> tuple[Job, Key]:
    job = job_submit(tenant=person.tenant, actor=person.actor, spec=spec)
    job_dispatch(job.pk, runtime=runtime)
    key = (str(job.pk), 1)
    runtime.tell_state(*key, WorkloadState.RUNNING, total_steps=job.total_steps)
    relay_all(runtime)
    return reread(job), key


def reinforced(person: Person, runtime: InMemoryRuntime, policy: Artifact, *, version: int = 60) -> Artifact:
    """What an RL job made of ``policy``."""
    job, key = start(person, runtime, console.rl_spec(str(policy.pk)))
    publish(runtime, key, console.adapter_of(str(job.pk), version=version))
    runtime.tell_state(*key, WorkloadState.SUCCEEDED, step=version, total_steps=version)
    relay_all(runtime)
    return artifact_list(person.tenant, job.pk, kind="adapter").get()


def evaluated(
    person: Person,
    runtime: InMemoryRuntime,
    policy: Artifact,
    *,
    tasks: Sequence[str] = console.TASKS[:1],
    films: Sequence[tuple[int, str]] = (),
    name: str = "how good is it",
) -> Job:
    """An evaluation that has ended; ``films``: (seed, outcome) of the first task."""
    job, key = start(person, runtime, console.evaluation_spec(str(policy.pk), tasks=tasks, name=name))
    for metrics in console.evaluation_metrics(tasks):
        runtime.tell(*key, metrics)
    for seed, outcome in films:
        film = console.video_of(str(job.pk), b"film", seed=seed, outcome=outcome)
        told = film.told.model_copy(update={"policy_version": policy.policy_version})
        publish(runtime, key, console.Published(told, film.content))
    publish(runtime, key, console.report_of(str(job.pk), tasks))
    runtime.tell_state(*key, WorkloadState.SUCCEEDED, step=job.total_steps, total_steps=job.total_steps)
    relay_all(runtime)
    return reread(job)


def html(person: Person, path: str, **headers: str) -> str:
    answer = person.browser().get(path, headers=headers)
    assert answer.status_code == 200, path
    return str(answer.content.decode())


def films_in(page: str) -> list[str]:
    """``version 200, seed 7`` of every film, in the page's order."""
    found = re.findall(r'data-title="[^"]*, seed (\d+), ([^",]+),', page)
    return [f"{version}, seed {seed}" for seed, version in found]
