"""Actions on chosen rows: a page asks first, then the service acts on each, and each act is written down."""

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from jobs.models import Job
from tenants.audit.models import AuditEvent
from tenants.billing.models import ReconciliationDifference, ReconciliationRun
from tenants.scope import platform_scope
from tenants.webhooks.models import DeliveryState
from tests.support.jobs import make_job
from tests.support.jobs import reread as job_now
from tests.support.story import Person, Story
from tests.support.webhooks import make_delivery, reread

JOBS, DIFFERENCES = "/admin/jobs/job/", "/admin/billing/reconciliationdifference/"
DELIVERIES = "/admin/webhooks/webhookdelivery/"


def choose(browser: Client, page: str, action: str, *rows: Any, **more: str) -> Any:
    return browser.post(page, {"action": action, "_selected_action": [str(row.pk) for row in rows], **more})


def acts() -> list[tuple[str, str]]:
    with platform_scope():
        rows = AuditEvent.objects.filter(actor_kind="operator").order_by("pk")
        return [(row.verb, row.object_id) for row in rows]


def confirm(browser: Client, page: str, action: str, *rows: Any, reason: str = "their receiver was down") -> Any:
    return choose(browser, page, action, *rows, confirmed="yes", reason=reason)


def reasons() -> set[str]:
    with platform_scope():
        return set(AuditEvent.objects.filter(actor_kind="operator").values_list("reason", flat=True))


def test_deliveries_are_sent_again_only_after_the_question(operator: Client, story: Story):
    first, second = make_delivery(story.alice), make_delivery(story.charlie)
    question = choose(operator, DELIVERIES, "redeliver", first, second)
    assert "Send these again" in question.content.decode()
    assert "<b>2</b>" in question.content.decode()
    assert [reread(row).state for row in (first, second)] == [DeliveryState.FAILED] * 2
    assert acts() == []
    assert confirm(operator, DELIVERIES, "redeliver", first, second).status_code == 302
    assert [reread(row).state for row in (first, second)] == [DeliveryState.WAITING] * 2
    assert len(acts()) == 2
    assert reasons() == {"their receiver was down"}


@pytest.mark.parametrize("reason", ["", "   "])
def test_nothing_is_done_without_a_reason_and_the_choice_is_kept(operator: Client, alice: Person, reason: str):
    row = make_delivery(alice)
    question = confirm(operator, DELIVERIES, "redeliver", row, reason=reason).content.decode()
    assert "This field is required." in question
    assert f'name="_selected_action" value="{row.pk}"' in question
    assert reread(row).state == DeliveryState.FAILED
    assert acts() == []


def test_what_is_refused_is_told_and_the_rest_is_done(operator: Client, story: Story):
    failed, waiting = make_delivery(story.alice), make_delivery(story.charlie, state=DeliveryState.WAITING)
    confirm(operator, DELIVERIES, "redeliver", failed, waiting)
    page = operator.get(DELIVERIES).content.decode()
    assert "Send again: 1 of 2." in page
    assert "It is on its way" in page


def test_too_many_rows_at_once_are_none(operator: Client, alice: Person, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tenants.admin_confirm.MOST_ROWS", 1)
    rows = [make_delivery(alice) for _ in range(2)]
    confirm(operator, DELIVERIES, "redeliver", *rows)
    assert "at most 1 at once" in operator.get(DELIVERIES).content.decode()
    assert acts() == []


def test_who_may_only_look_is_offered_no_action_but_the_csv(onlooker: Client, alice: Person):
    row = make_delivery(alice)
    page = onlooker.get(DELIVERIES).content.decode()
    assert 'value="export_as_csv"' in page
    assert 'value="redeliver"' not in page
    confirm(onlooker, DELIVERIES, "redeliver", row)
    assert reread(row).state == DeliveryState.FAILED
    assert acts() == []


def test_jobs_are_cancelled_after_the_question_and_ended_ones_are_told(operator: Client, story: Story):
    waiting, ended = make_job(story.alice), make_job(story.charlie)
    with platform_scope():
        Job.objects.filter(pk=ended.pk).update(state="succeeded")
    question = choose(operator, JOBS, "cancel", waiting, ended).content.decode()
    assert "push the cube of Alice&#x27;s lab, queued" in question
    assert job_now(waiting).state == "queued"
    confirm(operator, JOBS, "cancel", waiting, ended, reason="it hangs")
    assert (job_now(waiting).state, job_now(ended).state) == ("cancelled", "succeeded")
    assert acts() == [("job.cancelled", str(waiting.pk))]
    assert reasons() == {"it hangs"}
    assert "The job has already succeeded." in operator.get(JOBS).content.decode()


def test_a_failed_job_runs_again_after_the_question(operator: Client, alice: Person):
    job = make_job(alice)
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(state="failed", reason="out_of_memory", finished_at=timezone.now())
    choose(operator, JOBS, "requeue", job)
    assert job_now(job).state == "failed"
    confirm(operator, JOBS, "requeue", job, reason="the node was bad")
    assert job_now(job).state == "queued"
    assert acts() == [("job.requeued", str(job.pk))]
    assert reasons() == {"the node was bad"}


def test_a_difference_that_was_looked_at_ends_the_alert(operator: Client):
    run = ReconciliationRun.objects.create(started_at=timezone.now(), by="nightly")
    row = ReconciliationDifference.objects.create(run=run, check_name="spans", subject="x", expected="1", found="2")
    assert "nobody has seen: 1" in operator.get("/admin/").content.decode()
    choose(operator, DIFFERENCES, "see", row)
    row.refresh_from_db()
    assert row.seen_at is None
    for _ in range(2):
        confirm(operator, DIFFERENCES, "see", row, reason="a lost report, credited")
    row.refresh_from_db()
    assert row.seen_by is not None
    assert row.seen_by.email == "olga@platform.example"
    assert acts() == [("difference.seen", str(row.pk))]
    assert reasons() == {"a lost report, credited"}
    assert "nobody has seen" not in operator.get("/admin/").content.decode()


@pytest.mark.parametrize(("page", "action"), [(JOBS, "cancel"), (JOBS, "requeue"), (DIFFERENCES, "see")])
def test_staff_without_the_right_have_no_such_action(onlooker: Client, alice: Person, page: str, action: str):
    job = make_job(alice)
    run = ReconciliationRun.objects.create(started_at=timezone.now(), by="nightly")
    row = ReconciliationDifference.objects.create(run=run, check_name="spans", subject="x", expected="1", found="2")
    assert f'value="{action}"' not in onlooker.get(page).content.decode()
    confirm(onlooker, page, action, job if page == JOBS else row)
    assert acts() == []
