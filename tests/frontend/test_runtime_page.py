"""The runtime as its tenants see it: windows said, what is not measured said, and nobody else's names or numbers."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from frontend import shell
from jobs.models import Job, RuntimeSnapshot
from jobs.selectors.waits import own_waits
from tenants.scope import platform_scope
from tests.jobs.test_fairness import IN_A_BUCKET
from tests.jobs.test_utilization import span
from tests.support.jobs import make_job
from tests.support.story import Person, Story, make_person
from tests.support.usage import ingest

pytestmark = pytest.mark.django_db
SERVICE = {"state": "busy", "reason": None, "busy_share": 0.25, "window_s": 60.0, "queue_depth": 3}


def report(*, ago_s: float = 0, bases: tuple[dict[str, Any], ...] = (), **changes: Any) -> None:
    """What the runtime said of itself."""
    services = [
        SERVICE | {"service": "training", "group_size_mean": 2.5},
        SERVICE | {"service": "inference", "latency_p95_ms": 40.0},
        SERVICE | {"service": "environment", "seats_used": 3, "seats_total": 32},
    ]
    status = {"journal_id": "j", "last_seq": 0, "accepting": True, "reason": None, "bases": bases}
    status |= {"services": services, "active_jobs": 7, "partition_bytes": 0, "starts": 3, "started_at_us": 10**15}
    RuntimeSnapshot.objects.create(
        journal_id="j", status=status | changes, seen_at=timezone.now() - timedelta(seconds=ago_s)
    )


def read(person: Person) -> str:
    answer = person.browser().get("/runtime/")
    assert answer.status_code == 200
    return answer.content.decode()


def words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)).split())


def figure(text: str, name: str) -> dict[str, Any]:
    found = re.search(rf'<script id="fig-{name}" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    told: dict[str, Any] = json.loads(found.group(1))
    return told


def test_every_figure_states_its_window_and_unit(alice: Person) -> None:
    report()
    span(alice, "training", busy_s=9)
    said = words(read(alice))
    for told in (
        *("25.0 % busy, last 60", "0.5&nbsp;% busy", "3 waiting", "2.50 jobs", "40&nbsp;ms", "3 of 32"),
        *("7 jobs of all labs", "restarted 2 times", "% of each service, last 30 min", "Jobs, last 7 days"),
    ):
        assert told in said, told


def test_what_is_not_measured_is_said_and_never_zero(alice: Person) -> None:
    base = {
        "name": next(iter(settings.JOYNEXUS_BASE_MODELS)),
        "revision": "0" * 64,
        "parameters": 10,
        "hidden_size": 1,
        "layers": 1,
    }
    report(bases=(base | {"dtype": "float32", "device": "cpu", "random_weights": True},))
    said = words(read(alice))
    for told in ("not measured per lab", "not measurable, every base is on a CPU", "no job started", "nothing ran"):
        assert told in said


def test_stored_features_are_told_with_their_hit_rate_bytes_and_entries(alice: Person) -> None:
    report()
    assert "Stored features" not in read(alice), "a runtime that does not tell of them has no card"
    store = {"hits": 30, "misses": 10, "ram_bytes": 3_000_000, "file_bytes": 52_000_000, "entries": 12_345}
    RuntimeSnapshot.objects.all().delete()
    report(feature_store=store)
    said = words(read(alice))
    for told in ("Frames found 75.0&nbsp;%", "In memory 3.0 MB", "On disk 52.0 MB", "Entries 12,345"):
        assert told in said, told
    RuntimeSnapshot.objects.all().delete()
    report(feature_store=store | {"hits": 0, "misses": 0, "problem": "feature files: disk full"})
    said = words(read(alice))
    assert "none looked up" in said
    assert "On disk 52.0 MB, feature files: disk full" in said


def test_pictures_that_were_known_are_told_beside_the_stored_features(alice: Person) -> None:
    report()
    assert "Unchanged pictures" not in read(alice), "a runtime that does not tell of them has no card"
    RuntimeSnapshot.objects.all().delete()
    seen = {"hits": 3_000, "misses": 1_000, "bytes": 64_000_000}
    report(vision_reuse=seen)
    text = read(alice)
    for told in ("Known from before 75.0&nbsp;%", "Not run again 3,000", "New 1,000", "In memory 64.0 MB"):
        assert told in words(text), told
    assert "Stored features" not in text
    RuntimeSnapshot.objects.all().delete()
    store = {"hits": 0, "misses": 0, "ram_bytes": 0, "file_bytes": 0, "entries": 0}
    report(vision_reuse=seen | {"hits": 0, "misses": 0}, feature_store=store)
    text = read(alice)
    assert "Known from before none shown Not run again 0 New 0" in words(text)
    assert re.search(r'class="card c6" data-features.*class="card c6" data-pictures', text, re.DOTALL)


def test_a_runtime_that_is_away_is_said_to_be_and_so_is_one_that_takes_nothing(alice: Person) -> None:
    assert "has not reported yet" in read(alice)
    report(accepting=False, reason="disk_full")
    assert "disk_full" in read(alice)
    RuntimeSnapshot.objects.update(seen_at=timezone.now() - timedelta(minutes=5))
    assert "The figures are from then" in read(alice)


def test_nobody_elses_names_ids_or_parts_are_on_the_page(story: Story) -> None:
    report()
    secret = make_job(story.alice, name="secret plan")
    with platform_scope():
        Job.objects.filter(pk=secret.pk).update(state="running", started_at=timezone.now())
    third = make_person("dora", make_person("dan", story.charlie.tenant, "viewer").tenant, "viewer")
    span(story.alice, "training", busy_s=7.123457)
    span(story.charlie, "training", busy_s=2)
    for person in (story.charlie, third):
        text = read(person)
        own = figure(text, "own")
        for told in (str(story.alice.tenant.pk), "secret plan", str(secret.pk), "Alice", "7123457", "7.12"):
            assert told not in text, told
        assert sum(own["data"][0]["y"]) == pytest.approx(100 * 2 / 15, abs=0.1)
    assert "secret plan" in read(story.alice)


@time_machine.travel(IN_A_BUCKET, tick=False)
def test_fairness_is_ones_own_seconds_against_the_part_by_weight(story: Story) -> None:
    report()
    for person, busy_s in ((story.alice, 3), (story.charlie, 1)):
        span(person, "training", busy_s=busy_s)
    text = read(story.alice)
    assert "3.0\u00a0s of 2.0\u00a0s by weight" in text
    bars = figure(text, "fair")["data"][0]
    assert dict(zip(bars["y"], bars["x"], strict=True)) == pytest.approx({"training": 1.0, "inference": 0.0}, abs=1e-6)
    assert "nothing, you asked for nothing" in text


def test_the_page_asks_the_same_number_of_times_however_much_ran(alice: Person, monkeypatch: Any) -> None:
    monkeypatch.setattr(shell, "_spend_once", shell._spend_once.__wrapped__)  # else asked every 15 s only
    report()
    browser = alice.browser()

    def queries() -> int:
        browser.get("/runtime/")
        with CaptureQueriesContext(connection) as asked:
            assert browser.get("/runtime/").status_code == 200
        return len(asked)

    def work(count: int) -> None:
        for number in range(count):
            job = make_job(alice, name=f"job {number}")
            ingest(alice.tenant, job_id=job.pk)
            span(alice, "training", busy_s=0.1, ago_s=100 + number)
        with platform_scope():
            Job.objects.update(state="running", started_at=timezone.now())

    work(2)
    few = queries()
    work(25)
    assert queries() == few
    assert read(alice).count("data-row-link") == 20


def test_ones_wait_is_from_being_submitted_to_starting(alice: Person, charlie: Person) -> None:
    begin = timezone.now() - timedelta(hours=1)
    for number in range(20):
        job = make_job(alice)
        with platform_scope():
            started = begin + timedelta(seconds=number + 1)
            Job.objects.filter(pk=job.pk).update(created_at=begin, started_at=started)
    waits = own_waits(alice.tenant)
    assert (waits.jobs, waits.p50_s, waits.p95_s) == (20, 10.0, 19.0)
    assert own_waits(charlie.tenant).jobs == 0


def test_the_part_that_is_renewed_is_the_page_without_its_frame(alice: Person) -> None:
    report()
    part = alice.browser().get("/runtime/", headers={"HX-Request": "true"}).content
    assert b"<html" not in part
    assert b'data-service="training"' in part
