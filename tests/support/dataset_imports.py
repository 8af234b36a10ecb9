"""Rollout jobs whose recorded episodes are on their way into the datasets."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from jobs.models import Artifact, DatasetImport, Job, OutboxMessage
from jobs.services.outbox import IMPORT_DATASET
from tenants.datasets.models import DatasetVersion
from tenants.scope import platform_scope
from tests.support.jobs import events_of, relay_all
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import start_policy_job
from tests.support.service_steps import publish, succeed
from tests.support.story import Person

ZIP = b"PK\x05\x06" + bytes(18)


def recorded(person: Person, runtime: InMemoryRuntime, content: bytes = ZIP, **more: Any) -> tuple[Job, UUID]:
    """A rollout job that ended well and published its episodes."""
    job, key = start_policy_job(person, runtime, "rollout")
    publish(runtime, key, "dataset", content, **more)
    succeed(runtime, key, step=5, total_steps=5)
    relay_all(runtime)
    with platform_scope():
        return job, Artifact.objects.get(job=job).pk


def versions(job: Job) -> list[DatasetVersion]:
    with platform_scope():
        return list(DatasetVersion.objects.select_related("dataset").filter(recorded_from=job.pk))


def import_of(artifact_id: UUID) -> DatasetImport:
    with platform_scope():
        return DatasetImport.objects.select_related("artifact").get(artifact_id=artifact_id)


def pass_time(artifact_id: UUID) -> None:
    """Every pause and every claim is over."""
    with platform_scope():
        long_ago = timezone.now() - timedelta(hours=1)
        DatasetImport.objects.filter(artifact_id=artifact_id).update(claimed_until=long_ago)


def told(job: Job) -> list[tuple[str, str]]:
    return [(event.data["level"], event.data["message"]) for event in events_of(job, type="log")]


def waiting_messages(artifact_id: UUID) -> int:
    return OutboxMessage.objects.filter(topic=IMPORT_DATASET, key=str(artifact_id)).count()
