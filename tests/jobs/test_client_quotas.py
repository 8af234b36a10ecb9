"""The Python client asks what a job would cost and what is left of the limits."""

import pytest

from jobs.models import Job
from joynexus_client import Invalid
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tenants.scope import platform_scope
from tests.jobs.test_client import client_of
from tests.support.jobs import make_job, make_spec, make_version
from tests.support.story import Person

pytestmark = pytest.mark.django_db


def test_an_estimate_tells_cost_hold_and_refusals_and_submits_nothing(alice: Person):
    quota_set(by=alice.actor, tenant=alice.tenant, resource=Resource.QUEUED_JOBS, limit=0)
    told = client_of(alice).jobs.estimate(make_spec(make_version(alice)))
    assert told["lines"][0]["likely"] == 200 * 16
    assert told["hold"] == told["cost"]["high"]
    assert (told["admitted"], told["refusals"][0]["code"]) == (False, "quota_exceeded")
    with platform_scope():
        assert not Job.objects.exists()
    with pytest.raises(Invalid):
        client_of(alice).jobs.estimate({"kind": "sft"})


def test_the_client_reads_limits_and_filters_jobs_by_project_and_priority(alice: Person):
    make_job(alice, priority=7)
    client = client_of(alice)
    queued = next(row for row in client.quotas() if row["resource"] == "queued_jobs")
    assert (queued["limit"], queued["used"], queued["source"]) == (1000, 1, "default")
    job = next(client.jobs.list(project="default", priority=7))
    assert job["queue"] == {"reason": "", "position": 1, "of": 1}
    assert list(client.jobs.list(priority=1)) == []
