"""What people write on a job's page: its name, a note and tags, and that nobody overwrites what they have not seen."""

import re
from typing import Any

import pytest

from frontend.views.job.notes import RENAMED, TAG_RULE
from jobs.models import Job
from jobs.services.describe import job_describe
from tests.support.jobs import make_job, reread
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db

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


def test_a_job_is_renamed_in_its_head_and_nobody_overwrites_a_name_they_have_not_seen(story: Story):
    job = make_job(story.alice, name="first")
    page = shown(story.bob, job)
    form = {"expected": hidden(page, "expected"), "named": hidden(page, "named")}
    assert describe(story.alice, job, tag="night").status_code == 200  # no conflict about the name
    answer = describe(story.bob, job, **form, name="  <b>second</b> ")
    assert answer.status_code == 200
    assert "<title>&lt;b&gt;second&lt;/b&gt; · JoyNexus</title>" in answer.content.decode()
    assert reread(job).name == "<b>second</b>"
    slow = describe(story.alice, job, **form, name="third")
    both = slow.content.decode()
    assert slow.status_code == 412
    assert RENAMED in both
    assert 'value="third"' in both
    assert reread(job).name == "<b>second</b>"
    again = {"expected": hidden(both, "expected"), "named": "<b>second</b>", "name": "third"}
    assert describe(story.alice, job, **again).status_code == 200
    assert reread(job).name == "third"


def test_a_name_that_cannot_be_is_refused_in_words_with_and_without_script(story: Story):
    job = make_job(story.alice, name="first")
    form = {"expected": "1", "named": "first", "name": "x" * 201}
    part = describe(story.bob, job, **form)
    whole = story.bob.browser().post(f"/jobs/{job.pk}/describe/", form)
    assert part.status_code == whole.status_code == 422
    for answer in (part, whole):
        assert 'id="name-refusal"' in answer.content.decode()
        assert "200" in answer.content.decode().split('id="name-refusal"')[1].split("</p>")[0]
    saved = story.bob.browser().post(f"/jobs/{job.pk}/describe/", form | {"name": "second"})
    assert saved.status_code == 302
    assert reread(job).name == "second"


def test_who_may_only_look_changes_nothing(story: Story):
    job = make_job(story.alice)
    assert describe(story.viewer, job, note="no").status_code == 403
    assert describe(story.viewer, job, name="no").status_code == 403
    assert 'id="name-edit"' not in shown(story.viewer, job)
    assert describe(story.charlie, job, note="no").status_code == 404
    assert reread(job).note == ""


def test_a_preview_shows_and_keeps_nothing(story: Story):
    job = make_job(story.alice)
    answer = story.bob.browser().post(f"/jobs/{job.pk}/preview/", {"note": "# Plan\n<b>x</b>"}, headers=PART)
    assert "<h3>Plan</h3>" in answer.content.decode()
    assert "<b>" not in answer.content.decode()
    assert reread(job).note == ""
