"""The labs of the machine over admission: rows, the model beside them, and the clock both go by."""

from datetime import UTC, datetime, timedelta
from typing import Any

import time_machine
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from jobs.models import Job
from jobs.states import JobState
from tenants.billing.models import Hold
from tenants.models import Project, Tenant, User
from tenants.scope import platform_scope
from tests.support.admission_model import Model, ModelJob
from tests.support.factories import ProjectFactory, TenantFactory, UserFactory
from tests.support.jobs import make_spec
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import make_adapter, make_policy_spec
from tests.support.story import Person, make_person

START = datetime(2026, 10, 5, tzinfo=UTC)
PROJECTS = ("default", "second")


class Labs(RuleBasedStateMachine):
    """Two tenants with two projects each; the model says what must be, the services do it on rows."""

    def __init__(self) -> None:
        super().__init__()
        self.block = transaction.atomic()
        self.block.__enter__()  # everything is undone at the end of an example
        self.travel = time_machine.travel(START, tick=False)
        self.clock = self.travel.start()
        self.model, self.runtime = Model(), InMemoryRuntime()
        self.operator: User = UserFactory(is_staff=True)
        self.people: list[Person] = []
        self.projects: dict[tuple[int, str], Project] = {}
        self.specs: list[dict[bool, dict[str, Any]]] = []
        for number in range(2):
            self._open_lab(number)

    def _open_lab(self, number: int) -> None:
        tenant = TenantFactory()
        person = make_person(f"owner{number}", tenant, "owner")
        ProjectFactory(tenant=tenant, slug="second")
        with platform_scope():
            own = Project.objects.filter(tenant=tenant)
            self.projects |= {(number, project.slug): project for project in own}
        adapter = make_adapter(person)
        with platform_scope():  # the job behind the adapter is long over, and not part of this story
            Job.objects.filter(pk=adapter.job_id).update(state=JobState.SUCCEEDED)
            Hold.objects.filter(job_id=adapter.job_id).delete()
            version = adapter.job.dataset_version
        self.runtime.artifacts[adapter.runtime_key] = b"PK"
        self.people.append(person)
        self.specs.append({True: make_spec(version), False: make_policy_spec("evaluation", adapter)})

    def teardown(self) -> None:
        self.travel.stop()
        transaction.set_rollback(True)
        self.block.__exit__(None, None, None)

    def tick(self) -> None:
        """Every act happens a second after the one before."""
        self.clock.shift(timedelta(seconds=1))
        self.model.now += 1

    def tenant(self, number: int) -> Tenant:
        return Tenant.objects.get(pk=self.people[number].tenant.pk)

    def row(self, job: ModelJob) -> Job:
        with platform_scope():
            return Job.objects.select_related("tenant").get(pk=job.key)

    def pick(self, data: st.DataObject, state: str) -> ModelJob:
        return data.draw(st.sampled_from([job for job in self.model.jobs.values() if job.state == state]))
