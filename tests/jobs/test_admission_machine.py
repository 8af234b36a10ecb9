"""Any order of submits, dispatches, ends, limits and pauses: never too many, in line, and every hold where it belongs.

The planted defects at the end show that the machine would notice.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from django.db import transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gpu_runtime.protocol.messages import UsageLine
from jobs.models import Job
from jobs.selectors import line
from jobs.selectors.line import STARTED, queue_places
from jobs.services import dispatch, entry, places, spending, transition
from jobs.services.cancel import job_cancel
from jobs.services.dispatch import job_dispatch, tenant_dispatch
from jobs.services.submit import job_submit
from jobs.services.transition import job_transition
from jobs.states import TERMINAL, JobState
from tenants.billing.holds import reserved
from tenants.billing.models import Hold
from tenants.billing.periods import month_of
from tenants.billing.selectors import spent
from tenants.billing.services import usage_ingest
from tenants.errors import ApplicationError
from tenants.models import Project, Tenant, User
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set, quota_withdraw
from tenants.scope import platform_scope
from tenants.services import tenant_pause, tenant_resume
from tests.support.admission_model import AT_ONCE, MONEY, QUEUED, SEATS, Model, ModelJob
from tests.support.factories import ProjectFactory, TenantFactory, UserFactory
from tests.support.jobs import make_spec
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import make_adapter, make_policy_spec
from tests.support.story import Person, make_person

START = datetime(2026, 10, 5, tzinfo=UTC)
PROJECTS = ("default", "second")
TENANTS = st.integers(0, 1)
SCOPES = st.sampled_from([None, *PROJECTS])
LIMITED = st.sampled_from([*AT_ONCE, QUEUED, MONEY])


class Admission(RuleBasedStateMachine):
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

    # --- rules ---

    @initialize(
        running=st.integers(1, 3),
        slots=st.integers(1, 2),
        seats=st.integers(4, 6),
        queued=st.integers(2, 5),
        money=st.integers(3, 9),
    )
    def labs_are_small(self, running: int, slots: int, seats: int, queued: int, money: int) -> None:
        """Else most of what is tried would fit."""
        for tenant in range(2):
            for resource, limit in zip((*AT_ONCE, QUEUED, MONEY), (running, slots, seats, queued, money), strict=True):
                self._limit(tenant, None, resource, limit, None)

    @rule(
        tenant=TENANTS,
        project=st.sampled_from(PROJECTS),
        jobs=st.lists(st.tuples(st.booleans(), st.integers(1, 4), st.sampled_from([4, 5, 6])), min_size=1, max_size=3),
        cents=st.integers(0, 100),
    )
    def submits(self, tenant: int, project: str, jobs: list[tuple[bool, int, int]], cents: int) -> None:
        for trains, seats, priority in jobs:
            self._submit(tenant, project, trains, seats, priority, cents)

    def _submit(self, tenant: int, project: str, trains: bool, seats: int, priority: int, cents: int) -> None:
        self.tick()
        cost = Decimal(cents) / 100
        seats = 0 if trains else seats
        spec = {
            **self.specs[tenant][trains],
            "project": project,
            "priority": priority,
            "budget": {"max_cost": f"{cost}"},
        }
        spec |= {} if trains else {"parallel": seats}
        expected, person = self.model.refusal(tenant, project, cost, seats), self.people[tenant]
        job, refused = None, ""
        try:
            with transaction.atomic():
                job = job_submit(tenant=person.tenant, actor=person.actor, spec=spec)
        except ApplicationError as error:
            refused = error.code
        assert refused == expected
        if job is None:
            return
        self.model.jobs[str(job.pk)] = ModelJob(
            key=str(job.pk), tenant=tenant, project=project, trains=trains, seats=seats, priority=priority,
            number=self.model.now, cost=cost,
        )  # fmt: skip
        self.money_is_within_its_limits(tenant, project)

    def money_is_within_its_limits(self, tenant: int, project: str) -> None:
        """I10, from the books: spent + reserved <= limit at admission."""
        row, month = self.people[tenant].tenant, month_of(START)
        own = self.projects[tenant, project]
        for scope, of in ((None, None), (project, own)):
            limit = self.model.limit(tenant, scope, MONEY)
            assert limit is None or spent(row, month=month, project=of) + reserved(row, of) <= limit

    @rule(tenant=TENANTS)
    def dispatch_tenant(self, tenant: int) -> None:
        self.tick()
        expected = {job.key: self.model.wait(job) for job in self.model.line(tenant)}
        started = tenant_dispatch(self.people[tenant].tenant.pk, runtime=self.runtime)
        for key, wait in expected.items():
            job, row = self.model.jobs[key], self.row(self.model.jobs[key])
            assert (row.state, row.reason) == (("queued", wait) if wait else ("starting", "")), (wait, row.reason)
            job.state = "queued" if wait else "started"
        assert started == sum(not wait for wait in expected.values())
        self.nobody_starts_beyond_a_limit(tenant, bool(started))

    @precondition(lambda self: any(job.state == "queued" for job in self.model.jobs.values()))
    @rule(data=st.data())
    def dispatch_job(self, data: st.DataObject) -> None:
        self.tick()
        job = self.pick(data, "queued")
        wait = self.model.wait(job)
        job_dispatch(self.row(job).pk, runtime=self.runtime)
        row = self.row(job)
        assert (row.state, row.reason) == (("queued", wait) if wait else ("starting", "")), (wait, row.reason)
        if not wait:
            job.state = "started"
            self.nobody_starts_beyond_a_limit(job.tenant, True, only=job)

    def nobody_starts_beyond_a_limit(self, tenant: int, started: bool, only: ModelJob | None = None) -> None:
        """From the rows alone: where something has just started, what is started is within the limit."""
        if not started:
            return
        with platform_scope():
            rows = list(
                Job.objects.filter(tenant=self.people[tenant].tenant, state__in=STARTED).select_related("project")
            )
        for scope in (None, *PROJECTS):
            own = [row for row in rows if scope in (None, row.project.slug)]
            used = {"running_jobs": len(own), "slots": sum(row.kind == "sft" for row in own)}
            used["env_seats"] = sum(row.env_seats for row in own)
            for resource, amount in used.items():
                limit = self.model.limit(tenant, scope, resource)
                touched = only is None or (scope in (None, only.project) and only.demand[resource])
                newly = only is not None or self.newest_started(tenant, scope, resource)
                assert limit is None or not touched or not newly or amount <= limit, (scope, resource, amount, limit)

    def newest_started(self, tenant: int, scope: str | None, resource: str) -> bool:
        """Whether a job that takes of it is started that was not when the limit was last looked at."""
        now = {job.key for job in self.model.of(tenant, "started", scope) if job.demand[resource]}
        before = getattr(self, "known_started", {}).get((tenant, scope, resource), set())
        return bool(now - before)

    @precondition(lambda self: any(job.state == "started" for job in self.model.jobs.values()))
    @rule(data=st.data(), samples=st.integers(1, 30))
    def use(self, data: st.DataObject, samples: int) -> None:
        """A started job spends money: 0.05 for every thousand samples."""
        self.tick()
        job = self.pick(data, "started")
        row = self.row(job)
        usage_ingest(
            tenant=row.tenant, job_id=row.pk, project_id=row.project_id, source="j", event_id=str(self.model.now),
            lines=(UsageLine(meter="train.samples", quantity=samples * 1000),), occurred_at=START,
        )  # fmt: skip
        job.used += samples * Decimal("0.05")

    @precondition(lambda self: any(job.state == "started" for job in self.model.jobs.values()))
    @rule(data=st.data(), to=st.sampled_from([JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED]))
    def end(self, data: st.DataObject, to: JobState) -> None:
        self.tick()
        job = self.pick(data, "started")
        if job_transition(self.row(job), to=to) is not None:
            job.state = "ended"

    @precondition(lambda self: any(job.state != "ended" for job in self.model.jobs.values()))
    @rule(data=st.data(), state=st.sampled_from(["queued", "started"]))
    def cancel(self, data: st.DataObject, state: str) -> None:
        """Who waits ends at once; who is started keeps its place until the runtime confirms."""
        if not any(job.state == state for job in self.model.jobs.values()):
            return
        self.tick()
        job = self.pick(data, state)
        job_cancel(tenant=self.people[job.tenant].tenant, job_id=self.row(job).pk)
        job.state = "ended" if state == "queued" else "started"

    @rule(
        tenant=TENANTS, project=SCOPES, resource=LIMITED, limit=st.integers(0, 4), lasts=st.sampled_from([None, 3, 9])
    )
    def limit(self, tenant: int, project: str | None, resource: str, limit: int, lasts: int | None) -> None:
        """Raised or lowered, for good or for a few ticks."""
        self._limit(tenant, project, resource, limit * (2 if resource == SEATS else 1), lasts)

    def _limit(self, tenant: int, project: str | None, resource: str, limit: int, lasts: int | None) -> None:
        self.tick()
        until = None if lasts is None else self.model.now + lasts
        quota_set(
            by=self.operator,
            tenant=self.people[tenant].tenant,
            project=self.projects[tenant, project] if project else None,
            resource=Resource(resource),
            limit=limit,
            expires_at=None if until is None else START + timedelta(seconds=until),
        )
        self.model.set_limit((tenant, project, resource), limit, until)

    @rule(tenant=TENANTS, project=SCOPES, resource=LIMITED)
    def withdraw(self, tenant: int, project: str | None, resource: str) -> None:
        self.tick()
        own = self.projects[tenant, project] if project else None
        row = self.people[tenant].tenant
        quota_withdraw(by=self.operator, tenant=row, resource=Resource(resource), project=own)
        self.model.limits.pop((tenant, project, resource), None)

    @rule(seconds=st.integers(1, 9))
    def wait(self, seconds: int) -> None:
        """Limits for a while run out."""
        for _ in range(seconds):
            self.tick()

    @rule(tenant=TENANTS, paused=st.booleans())
    def pause(self, tenant: int, paused: bool) -> None:
        self.tick()
        if paused:
            tenant_pause(by=self.operator, tenant=self.tenant(tenant), reason="an unpaid bill")
            self.model.paused.add(tenant)
        else:
            tenant_resume(by=self.operator, tenant=self.tenant(tenant))
            self.model.paused.discard(tenant)

    def pick(self, data: st.DataObject, state: str) -> ModelJob:
        return data.draw(st.sampled_from([job for job in self.model.jobs.values() if job.state == state]))

    # --- invariants ---

    @invariant()
    def every_live_job_has_its_hold_and_no_other_has_one(self) -> None:
        with platform_scope():
            held = dict(Hold.objects.filter(released_at=None).values_list("job_id", "amount"))
        live = {job.key: job.cost for job in self.model.jobs.values() if job.state != "ended"}
        assert {str(key): amount for key, amount in held.items()} == live

    @invariant()
    def places_are_counted_in_the_order_in_which_jobs_start(self) -> None:
        with platform_scope():
            rows = list(Job.objects.filter(state=JobState.QUEUED))
        for number, person in enumerate(self.people):
            own = [row for row in rows if row.tenant_id == person.tenant.pk]
            found = {
                str(key): (place.position, place.of) for key, place in queue_places(person.tenant.pk, own).items()
            }
            line = self.model.line(number)
            assert found == {job.key: (place, len(line)) for place, job in enumerate(line, start=1)}

    @invariant()
    def rows_are_where_the_model_has_them(self) -> None:
        with platform_scope():
            states = dict(Job.objects.values_list("pk", "state"))
        for job in self.model.jobs.values():
            state = next(state for key, state in states.items() if str(key) == job.key)
            expected = {"queued": {JobState.QUEUED}, "started": STARTED, "ended": TERMINAL}[job.state]
            assert state in expected
        self.known_started = {
            (tenant, scope, resource): {
                one.key for one in self.model.of(tenant, "started", scope) if one.demand[resource]
            }
            for tenant in range(2)
            for scope in (None, *PROJECTS)
            for resource in AT_ONCE
        }


def run(examples: int, steps: int, *, phases: tuple[Phase, ...] = (Phase.generate,)) -> None:
    run_state_machine_as_test(
        Admission,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=True, phases=phases,
            suppress_health_check=list(HealthCheck), print_blob=False,
        ),
    )  # fmt: skip


@pytest.mark.django_db
def test_whatever_happens_limits_order_money_and_holds_are_kept():
    run(12, 30)


def _stale_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is started is counted once and remembered: read before the lock."""
    known: dict[Any, Any] = {}
    count = places.started_use
    monkeypatch.setattr(places, "started_use", lambda tenant: known.setdefault(tenant.pk, count(tenant)))


def _no_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "ORDER", ("created_at", "pk"))


def _overtaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits keeps nothing for itself."""
    place = places._place

    def careless(tenant: Any, project: Any, wanted: Any) -> Any:
        kept = dict(tenant.free), dict(project.free)
        wait = place(tenant, project, wanted)
        if wait is not None:
            tenant.free, project.free = kept
        return wait

    monkeypatch.setattr(places, "_place", careless)


def _hold_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transition, "hold_release", lambda *, job_id: None)


def _reserved_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spending, "reserved", lambda tenant, project=None: Decimal(0))


def _line_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "queued_counts", lambda tenant: {})


def _pause_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PAUSED", "not_told")


def _claims_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "wait_of", lambda tenant, job_id: None)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "plant",
    [
        _stale_counts, _no_priority, _overtaking, _hold_kept, _reserved_forgotten, _line_not_counted, _pause_ignored,
        _claims_without_asking,
    ],
)  # fmt: skip
def test_a_planted_defect_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run(40, 30)
