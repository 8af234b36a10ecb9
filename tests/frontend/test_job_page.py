"""A job's page as Django sends it: its tabs, what people write on it, and the arithmetic of what is left."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from frontend.markdown import markdown
from frontend.specification import as_curl, as_python, setting_groups, spec_changes
from frontend.spending import Range, per_hour, projected
from frontend.state_line import Entry, state_line, time_in_states, time_left
from frontend.templatetags.job import amount_range
from frontend.views.job.notes import TAG_RULE
from frontend.views.job.tabs import TABS
from jobs.models import Job
from jobs.selectors.pace import Burn, Pace, burn_of, pace_between
from jobs.services.cancel import job_cancel
from jobs.services.describe import job_describe
from jobs.services.transition import job_log
from tenants.scope import platform_scope
from tests.support.jobs import make_job, reread
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PART = {"HX-Request": "true"}


def shown(person: Person, job: Job, query: str = "") -> str:
    answer = person.browser().get(f"/jobs/{job.pk}/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def describe(person: Person, job: Job, **form: Any) -> Any:
    return person.browser().post(f"/jobs/{job.pk}/describe/", form, headers=PART)


def hidden(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found
    return found[1]


# What is on the page.


@pytest.mark.parametrize("tab", [tab.name for tab in TABS])
def test_every_tab_is_a_page_of_its_own_and_a_foreign_one_is_missing(story: Story, tab: str):
    job = make_job(story.alice)
    page = shown(story.viewer, job, f"?tab={tab}")
    assert f'href="?tab={tab}" aria-current="page"' in page
    foreign = story.charlie.browser().get(f"/jobs/{job.pk}/?tab={tab}")
    missing = story.charlie.browser().get(f"/jobs/{uuid4()}/?tab={tab}")
    assert foreign.status_code == missing.status_code == 404
    assert foreign.content == missing.content


@pytest.mark.parametrize(
    "query",
    ["?tab=nonsense", "?tab=events&before=x", "?tab=events&before=" + "9" * 40, "?tab=logs&level=loud&q=%00",
     "?tab=spec&against=J-999", "?tab=spec&against=%00", "?tab=logs&q=" + "x" * 900, "?colour=red"],
)  # fmt: skip
def test_no_query_string_breaks_the_page(story: Story, query: str):
    shown(story.alice, make_job(story.alice), query)


def test_only_what_the_open_tab_shows_is_asked_for(story: Story):
    job = make_job(story.alice)
    asked = {}
    for tab in ("events", "logs", "spec", "charts"):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            shown(story.alice, job, f"?tab={tab}")
        asked[tab] = " ".join(query["sql"] for query in queries)
    assert "jobs_jobattempt" in asked["events"]
    assert not any("jobs_jobattempt" in asked[tab] for tab in ("logs", "spec", "charts"))


@pytest.mark.parametrize("tab", ["charts", "events", "logs", "spec"])
def test_a_long_life_costs_no_more_queries_than_a_short_one(story: Story, tab: str):
    make_job(story.alice, name="another")
    job, browser = make_job(story.alice), story.alice.browser()
    path = f"/jobs/{job.pk}/?tab={tab}"
    browser.get(path)
    with CaptureQueriesContext(connection) as short:
        browser.get(path)
    for number in range(60):
        job_log(job, level="warning", message=f"line {number}")
    for number in range(4):
        make_job(story.alice, name=f"other {number}")
    with CaptureQueriesContext(connection) as long:
        browser.get(path)
    assert len(long) == len(short)
    assert len(long) < 60


def test_a_name_and_a_message_of_markup_are_text(story: Story):
    job = make_job(story.alice, name="<img src=x onerror=alert(1)>")
    job_log(job, level="error", message="<script>alert(2)</script>")
    for tab in TABS:
        page = shown(story.alice, job, f"?tab={tab.name}")
        assert "<img src=x" not in page
        assert "<script>alert(2)" not in page


def test_a_queued_job_says_its_place_what_is_to_come_and_that_nothing_is_billed(story: Story):
    make_job(story.alice)
    job = make_job(story.alice)
    page = shown(story.alice, job)
    assert "2 of 2 in line" in page
    assert "Nothing is billed before it runs" in page
    assert "No attempt yet" in page
    way = page[page.index('class="state"') : page.index("</ol>")]
    assert re.findall(r'<li class="todo">.*?</svg>(\w+)</div>', way) == ["Starting", "Running"]


def test_the_parts_that_are_read_anew_say_what_the_page_says(story: Story):
    job = make_job(story.alice, budget={"max_cost": "80"})
    fresh = story.alice.browser().get(f"/jobs/{job.pk}/now/").content.decode()
    page = shown(story.alice, job)
    for part in ("acts", "state", "cost", "stop"):
        assert f'data-now="{part}"' in fresh
        assert f'data-now="{part}"' in page
    for words in ("of €80.00 cap", "Still reserved for it", "50 %", "80 %"):
        assert words in fresh
        assert words in page


def test_an_ended_job_offers_to_run_again_and_a_live_one_to_cancel(story: Story):
    job = make_job(story.alice)
    assert "Cancel job" in shown(story.bob, job)
    assert "Run again" not in shown(story.bob, job)
    job_cancel(tenant=story.alice.tenant, job_id=job.pk, by=story.alice.actor)
    assert "Cancel job" not in shown(story.bob, job)
    assert "Run again" in shown(story.bob, job)
    page = shown(story.viewer, job)
    assert not any(words in page for words in ("Run again", "Add tag", "Write a note"))


def test_running_again_says_the_price_first_and_then_makes_a_job(story: Story):
    job = make_job(story.alice, name="push")
    browser = story.bob.browser()
    assert "The job is queued" in browser.get(f"/jobs/{job.pk}/retry/", headers=PART).content.decode()
    refused = browser.post(f"/jobs/{job.pk}/retry/")
    assert refused.status_code == 409
    assert "only a job that has ended" in refused.content.decode()
    job_cancel(tenant=story.alice.tenant, job_id=job.pk, by=story.alice.actor)
    told = browser.get(f"/jobs/{job.pk}/retry/", headers=PART).content.decode()
    assert "Reserved while it lives" in told
    assert "<html" not in told
    assert "<html" in browser.get(f"/jobs/{job.pk}/retry/").content.decode()
    answer = browser.post(f"/jobs/{job.pk}/retry/")
    with platform_scope():
        new = Job.objects.get(cloned_from=job.pk)
    assert answer["Location"] == f"/jobs/{new.pk}/"
    assert story.viewer.browser().post(f"/jobs/{job.pk}/retry/").status_code == 403


def test_the_time_line_goes_back_page_by_page_and_leaves_usual_log_lines_out(story: Story):
    job = make_job(story.alice)
    job_log(job, level="info", message="as usual")
    for number in range(105):
        job_log(job, level="warning", message=f"warning {number}")
    first = shown(story.alice, job, "?tab=events")
    assert "warning 104" in first
    assert "warning 4<" not in first
    assert "as usual" not in first
    older = re.search(r"tab=events&amp;before=(\d+)", first)
    assert older
    second = shown(story.alice, job, f"?tab=events&before={older[1]}")
    numbers = [int(seq) for page in (first, second) for seq in re.findall(r'data-seq="(\d+)"', page)]
    assert sorted(set(numbers)) == sorted(numbers) == [1, *range(3, 108)]


def test_the_log_tab_searches_and_filters_without_script(story: Story):
    job = make_job(story.alice)
    job_log(job, level="info", message="gripper opened")
    job_log(job, level="error", message="gripper lost")
    page = shown(story.alice, job, "?tab=logs&q=GRIPPER&level=error")
    assert "gripper lost" in page
    assert "gripper opened" not in page
    assert 'class="log-line of-state"' in shown(story.alice, job, "?tab=logs")


# What people write on it.


def test_a_note_is_shown_as_html_and_never_as_markup_of_its_writer(story: Story):
    job = make_job(story.alice)
    answer = describe(story.bob, job, note="**bold** <script>x</script>", expected=1, seen="")
    assert answer.status_code == 200
    assert "<strong>bold</strong> &lt;script&gt;" in answer.content.decode()
    assert "<strong>bold</strong>" in shown(story.viewer, job)
    assert reread(job).note == "**bold** <script>x</script>"


def test_two_people_do_not_overwrite_each_others_note(story: Story):
    job = make_job(story.alice)
    page = shown(story.bob, job)
    describe(story.alice, job, note="Alice was first", expected=1, seen="")
    form = {"expected": hidden(page, "expected"), "seen": hidden(page, "seen"), "note": "Bob was slow"}
    answer = describe(story.bob, job, **form)
    both = answer.content.decode()
    assert answer.status_code == 412
    assert "Alice was first" in both
    assert "Bob was slow</textarea>" in both
    assert reread(job).note == "Alice was first"
    form |= {"expected": hidden(both, "expected"), "seen": hidden(both, "seen")}
    assert describe(story.bob, job, **form).status_code == 200
    assert reread(job).note == "Bob was slow"


def test_without_script_a_conflict_is_the_page_with_both_texts(story: Story):
    job = make_job(story.alice)
    job_describe(by=story.alice.actor, tenant=story.alice.tenant, job_id=job.pk, note="theirs")
    answer = story.bob.browser().post(f"/jobs/{job.pk}/describe/", {"note": "mine", "expected": "1", "seen": "x"})
    assert answer.status_code == 412
    assert "<html" in answer.content.decode()
    assert "theirs" in answer.content.decode()
    assert "mine</textarea>" in answer.content.decode()


def test_a_tag_meanwhile_is_no_conflict_about_the_note(story: Story):
    job = make_job(story.alice)
    page = shown(story.bob, job)
    assert describe(story.alice, job, tag="night").status_code == 200
    form = {"expected": hidden(page, "expected"), "seen": hidden(page, "seen"), "note": "mine"}
    assert describe(story.bob, job, **form).status_code == 200
    assert reread(job).note == "mine"


def test_tags_come_and_go_one_by_one_and_a_bad_one_says_why(story: Story):
    job = make_job(story.alice, tags=["night"])
    assert "Remove tag cube" in describe(story.bob, job, tag="cube").content.decode()
    left = describe(story.bob, job, untag="night").content.decode()
    assert "Remove tag cube" in left
    assert "Remove tag night" not in left
    answer = describe(story.bob, job, tag="x" * 51)
    assert answer.status_code == 422
    assert TAG_RULE in answer.content.decode()


def test_who_may_only_look_changes_nothing(story: Story):
    job = make_job(story.alice)
    assert describe(story.viewer, job, note="no").status_code == 403
    assert describe(story.charlie, job, note="no").status_code == 404
    assert reread(job).note == ""


def test_a_preview_shows_and_keeps_nothing(story: Story):
    job = make_job(story.alice)
    answer = story.bob.browser().post(f"/jobs/{job.pk}/preview/", {"note": "# Plan\n<b>x</b>"}, headers=PART)
    assert "<h3>Plan</h3>" in answer.content.decode()
    assert "<b>" not in answer.content.decode()
    assert reread(job).note == ""


XSS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![x](https://evil.example/x.png)",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\nscript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "<javascript:alert(1)>",
    "[x]: javascript:alert(1)\n\n[x]",
    '<a href="x" onclick="alert(1)">x</a>',
    "<svg/onload=alert(1)>",
    "<iframe src=//evil.example></iframe>",
    '<p style="position:fixed">x</p>',
    "<style>body{display:none}</style>",
    "<form action=//evil.example><button>Log in</button></form>",
    "<details open ontoggle=alert(1)>",
    '[x](https://a.example "\\" onmouseover=alert(1) ")',
    "`<img src=x onerror=alert(1)>`",
    "<math><mtext></p><script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
]


@pytest.mark.parametrize("text", XSS)
def test_no_text_becomes_an_element_that_acts(text: str):
    html = markdown(text)
    tags = re.findall(r"<\s*([a-z0-9]+)([^>]*)>", html, re.IGNORECASE)
    assert {name.lower() for name, _ in tags} <= {"p", "a", "code", "em", "strong", "pre", "h3", "br"}
    for _, attributes in tags:
        assert not re.search(r"\son\w+\s*=", re.sub(r'"[^"]*"', '""', attributes))
        assert not re.search(r'href="\s*(javascript|data|vbscript):', attributes, re.IGNORECASE)
        assert "style=" not in attributes


def test_usual_markdown_is_shown_as_meant():
    html = markdown(
        "# Result\n\n- a\n- b\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n[paper](https://arxiv.org/abs/1) ~~no~~"
    )
    for part in ("<h3>Result</h3>", "<li>a</li>", "<td>1</td>", 'href="https://arxiv.org/abs/1"', "<s>no</s>"):
        assert part in html
    assert 'rel="noopener noreferrer nofollow"' in html


# The specification.


def test_a_clone_is_compared_with_its_parent_and_any_job_by_handle(story: Story):
    old = make_job(story.alice, name="old", training={"steps": 100})
    new = make_job(story.alice, name="new", training={"steps": 300}, cloned_from=str(old.pk))
    page = shown(story.alice, new, "?tab=spec")
    assert "training.steps" in page
    assert "<del>100</del>" in page
    assert "<ins>300</ins>" in page
    assert "which this job was made from" in page
    assert "cloned_from</td>" not in page
    third = make_job(story.alice, name="third", training={"steps": 7})
    for named in (f"J-{third.number}", f"j-{third.number}", str(third.number), str(third.pk)):
        assert "<del>7</del>" in shown(story.alice, new, f"?tab=spec&against={named}")
    foreign = make_job(story.charlie, name="secret plan")
    page = shown(story.alice, new, f"?tab=spec&against={foreign.pk}")
    assert "There is no job" in page
    assert "secret plan" not in page


def test_changes_are_told_by_path():
    old = {"a": 1, "b": {"c": [1, 2], "d": None}, "list": [{"id": "x"}], "gone": {}, "cloned_from": None}
    new = {"a": 1.5, "b": {"c": [1, 2], "d": False}, "list": [{"id": "y"}, {"id": "z"}], "cloned_from": "k"}
    told = [(change.path, change.kind, change.old, change.new) for change in spec_changes(old, new)]
    assert told == [
        ("a", "changed", "1", "1.5"),
        ("b.d", "changed", "none", "no"),
        ("list[0].id", "changed", "x", "y"),
        ("gone", "removed", "{}", ""),
        ("list[1].id", "added", "", "z"),
    ]
    assert spec_changes(old, old) == ()
    assert [c.kind for c in spec_changes({"x": 1}, {"x": True})] == ["changed"]


def test_settings_are_grouped_by_the_part_they_are_in():
    groups = setting_groups({"kind": "sft", "training": {"steps": 5, "lr": None}, "tags": ["a", "b"]})
    assert [group.title for group in groups] == ["General", "Training"]
    assert [(one.path, one.value) for one in groups[0].settings] == [("kind", "sft"), ("tags", "a, b")]
    assert [(one.path, one.name, one.value) for one in groups[1].settings] == [
        ("training.steps", "Steps", "5"),
        ("training.lr", "Learning rate", "none"),
    ]


def test_commands_that_submit_it_again_survive_any_name():
    spec = {"name": 'it\'s """ a \\ test', "steps": 1, "none": None}
    code = as_python(spec, origin="http://x")
    text = code[code.index("spec = ") : code.index("job = ")]
    scope: dict[str, Any] = {}
    exec("import json\n" + text, scope)  # the text is ours
    assert scope["spec"] == spec
    assert "it'\\''s" in as_curl(spec, origin="http://x")


def test_the_specification_is_a_file_that_can_be_submitted(story: Story):
    job = make_job(story.alice)
    answer = story.viewer.browser().get(f"/jobs/{job.pk}/spec/")
    assert answer.json() == job.spec
    assert f'filename="J-{job.number}.json"' in answer["Content-Disposition"]


# The arithmetic of what is left.


def test_time_in_states_adds_up_several_stays_and_notes_are_no_moves():
    moves = [("queued", 0), ("queued", 2), ("starting", 3), ("running", 4), ("queued", 10), ("running", 15)]
    entries = [Entry(state=state, at=NOON + minute * MINUTE) for state, minute in moves]
    assert time_in_states(entries, until=NOON + 20 * MINUTE) == {
        "queued": 8 * MINUTE,
        "starting": MINUTE,
        "running": 11 * MINUTE,
    }
    backwards = [Entry(state="queued", at=NOON), Entry(state="running", at=NOON - MINUTE)]
    assert time_in_states(backwards, until=NOON)["queued"] == timedelta(0)


def test_the_line_of_a_running_job_says_when_it_will_be_done():
    job = Job(state="running", step=50, total_steps=100, created_at=NOON)
    entries = [Entry(state="queued", at=NOON), Entry(state="running", at=NOON + MINUTE)]
    line = state_line(job, entries, Pace(steps=10, seconds=60.0), now=NOON + 6 * MINUTE)
    assert [(phase.state, phase.spent) for phase in line.past] == [("queued", MINUTE)]
    assert line.since == NOON + MINUTE
    assert line.done_at == NOON + 11 * MINUTE
    assert line.to_come == ()
    job.state = "cancelling"
    assert state_line(job, entries, Pace(steps=10, seconds=60.0), now=NOON).done_at is None


def test_the_present_stay_begins_with_its_first_note():
    entries = [Entry(state="queued", at=NOON), Entry(state="queued", at=NOON + 5 * MINUTE)]
    line = state_line(Job(state="queued", created_at=NOON), entries, None, now=NOON + 6 * MINUTE)
    assert line.since == NOON


def test_time_left_is_unknown_rather_than_guessed():
    assert time_left(step=10, total=100, pace=Pace(steps=9, seconds=90.0)) == timedelta(seconds=900)
    assert time_left(step=10, total=100, pace=None) is None
    assert time_left(step=1, total=100, pace=Pace(steps=1, seconds=9.0)) is None
    assert time_left(step=100, total=100, pace=Pace(steps=9, seconds=9.0)) is None


def test_a_job_that_has_gone_silent_is_slower_than_it_was():
    fast = pace_between(0, NOON, 10, NOON + 10 * MINUTE, now=NOON + 10.5 * MINUTE)
    assert fast == Pace(steps=10, seconds=600.0)
    silent = pace_between(0, NOON, 10, NOON + 10 * MINUTE, now=NOON + 31 * MINUTE)
    assert silent == Pace(steps=10, seconds=600.0 + 20 * 60)
    assert pace_between(4, NOON, 4, NOON + MINUTE, now=NOON) is None


def test_money_per_hour_is_that_of_the_last_rows():
    rows = [(NOON, Decimal(99)), (NOON + 30 * MINUTE, Decimal(1)), (NOON + 60 * MINUTE, Decimal(2))]
    burn = burn_of(rows, now=NOON + 60 * MINUTE)
    assert burn == Burn(amount=Decimal(3), seconds=3600.0)
    assert per_hour(burn) == Decimal(3)
    assert burn_of(rows[:1], now=NOON) is None
    assert per_hour(None) is None


def test_the_end_is_projected_between_the_average_and_the_present_rate():
    burn, left = Burn(amount=Decimal(3), seconds=3600.0), timedelta(hours=2)
    end = projected(Decimal(8), step=50, total=100, burn=burn, left=left, cap=None)
    assert end == Range(low=Decimal(14), high=Decimal(16))
    capped = projected(Decimal(8), step=50, total=100, burn=burn, left=left, cap=Decimal(15))
    assert capped == Range(low=Decimal(14), high=Decimal(15), is_cut=True)
    assert projected(Decimal(8), step=0, total=100, burn=burn, left=left, cap=None) is None
    assert projected(Decimal(8), step=50, total=100, burn=burn, left=None, cap=None) is None


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        ("56.2", "60.7", "€56–61"),
        ("1.111", "1.114", "about €1.11"),
        ("1.1", "2.25", "€1.10–2.25"),
        ("0.0042", "0.0081", "€0.0042–0.0081"),
        ("99.6", "100.2", "€99.60–100.20"),
    ],
)
def test_a_range_is_written_with_the_digits_it_has(low: str, high: str, text: str):
    assert amount_range(Range(low=Decimal(low), high=Decimal(high)), "EUR") == text
