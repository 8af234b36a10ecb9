"""What a job's page reckons and writes: notes as HTML, differences by path, time and money that are left."""

import ast
import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from frontend.forms.snippets import snippets_of
from frontend.markdown import markdown
from frontend.specification import setting_groups, spec_changes
from frontend.spending import Range, per_hour, projected
from frontend.state_line import Entry, state_line, time_in_states, time_left
from frontend.templatetags.job import amount_range
from jobs.models import Job
from jobs.selectors.pace import Burn, Pace, burn_of, pace_between

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

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


def test_changes_are_told_by_path():
    old = {"a": 1, "b": {"c": [1, 2], "d": None}, "list": [{"id": "x"}], "gone": {}, "cloned_from": None}
    new = {"a": 1.5, "b": {"c": [1, 2], "d": False}, "list": [{"id": "y"}, {"id": "z"}], "cloned_from": "k"}
    told = [(change.path, change.kind, change.old, change.new) for change in spec_changes(old, new)]
    assert told == [
        ("a", "changed", "1", "1.5"),
        ("b.d", "changed", "none", "no"),
        ("list[0].id", "changed", "x", "y"),
        ("gone", "removed", "none", ""),
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
    spec = {"name": 'it\'s """ a \\ test', "steps": 1, "none": None, "exact": True}
    told = snippets_of(spec, "http://x")
    body = told.python.partition("submit(")[2].rpartition(")\n")[0]
    assert ast.literal_eval(body) == spec
    assert json.loads(shlex.split(told.curl)[-1]) == spec


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
