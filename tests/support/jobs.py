"""Jobs of the story, and how tests move them along."""

from typing import Any
from uuid import UUID

from jobs.models import Job, JobEvent, MetricPoint
from jobs.relay import Relay
from jobs.runtime_client import RuntimeClient
from jobs.services.dispatch import job_dispatch
from jobs.services.ingest import Applied
from jobs.services.submit import job_submit
from tenants.datasets.models import DatasetVersion
from tenants.scope import platform_scope
from tests.support.factories import DatasetFactory, DatasetVersionFactory
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person


def make_version(person: Person, **fields: Any) -> DatasetVersion:
    """A ready dataset version of the person's tenant."""
    return DatasetVersionFactory(dataset=DatasetFactory(tenant=person.tenant), **fields)


def make_spec(version: DatasetVersion | None = None, **fields: Any) -> dict[str, Any]:
    """A specification that is admitted; ``head``, ``dataset`` and ``training`` are merged into the defaults."""
    spec: dict[str, Any] = {
        "kind": "sft",
        "name": "push the cube",
        "base_model": "tiny-qwen3-vl",
        "head": {"type": "mlp", "horizon": 4},
        "dataset": {"id": str(version.pk) if version else ""},
        "training": {"steps": 200},
    }
    for name, value in fields.items():
        spec[name] = {**spec[name], **value} if isinstance(spec.get(name), dict) else value
    return spec


def make_job(person: Person, **fields: Any) -> Job:
    """A queued job of the person's tenant."""
    return job_submit(tenant=person.tenant, actor=person.actor, spec=make_spec(make_version(person), **fields))


def start_job(person: Person, runtime: InMemoryRuntime, **fields: Any) -> tuple[Job, tuple[str, int]]:
    """A job whose first attempt the runtime has accepted, and the attempt's key there."""
    job = make_job(person, **fields)
    job_dispatch(job.pk, runtime=runtime)
    return reread(job), (str(job.pk), 1)


def relay_all(runtime: RuntimeClient) -> Applied:
    """Bring everything in the journal into the database."""
    relay = Relay(runtime)
    while True:
        applied = relay.poll(wait_s=0)
        if applied is not None and applied.applied == 0:
            return applied


def reread(job: Job | UUID) -> Job:
    with platform_scope():
        return Job.objects.select_related("tenant").get(pk=getattr(job, "pk", job))


def events_of(job: Job, **lookup: Any) -> list[JobEvent]:
    with platform_scope():
        return list(JobEvent.objects.filter(job_id=job.pk, **lookup).order_by("seq"))


def points_of(job: Job, **lookup: Any) -> list[MetricPoint]:
    with platform_scope():
        return list(MetricPoint.objects.filter(job_id=job.pk, **lookup).order_by("seq", "series"))


def states_of(job: Job) -> list[str]:
    """The states a job went through, as its stream tells them."""
    return [event.data["state"] for event in events_of(job, type="state")]
