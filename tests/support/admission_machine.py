"""Any order of submits, dispatches, ends, limits and pauses of two tenants, judged by the model and from the rows."""

from datetime import timedelta
from decimal import Decimal

from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from gpu_runtime.protocol.messages import UsageLine
from jobs.models import Job
from jobs.selectors.line import STARTED, queue_places
from jobs.services.cancel import job_cancel
from jobs.services.dispatch import job_dispatch, tenant_dispatch
from jobs.services.submit import job_submit
from jobs.services.transition import job_transition
from jobs.states import TERMINAL, JobState
from tenants.billing.ledger.holds import reserved
from tenants.billing.models import Hold
from tenants.billing.usage.periods import month_of
from tenants.billing.usage.selectors import spent
from tenants.errors import ApplicationError
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set, quota_withdraw
from tenants.scope import platform_scope
from tenants.services import tenant_pause, tenant_resume
from tests.support.admission_labs import PROJECTS, START, Labs
from tests.support.admission_model import AT_ONCE, MONEY, QUEUED, SEATS, ModelJob
from tests.support.usage import usage_ingest

TENANTS = st.integers(0, 1)
SCOPES = st.sampled_from([None, *PROJECTS])
LIMITED = st.sampled_from([*AT_ONCE, QUEUED, MONEY])


class Admission(Labs):
    """The services do it on rows, the model says what must come of it."""

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
