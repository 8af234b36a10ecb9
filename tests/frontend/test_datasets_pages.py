"""Pages of datasets as Django sends them: the list, one dataset, what may be done there, the upload."""

import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from frontend import shell
from frontend.spreads import FAR, FIGURES_MAX, groups_of, lengths_of
from tenants.datasets import storage
from tenants.datasets.models import Dataset, DatasetVersion, VersionState
from tenants.quotas.storage import storage_add
from tenants.scope import platform_scope
from tests.support.factories import DatasetFactory, DatasetVersionFactory, UploadFactory, make_summary
from tests.support.jobs import make_job
from tests.support.lerobot_v21 import CAMERA, write_v21
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db

MARKUP = '<img src=x onerror="alert(1)">'


@pytest.fixture(autouse=True)
def _own_previews(settings, tmp_path: Path) -> None:
    settings.JOYNEXUS_PREVIEW_ROOT = tmp_path / "previews"


def dataset(person: Person, name: str = "push-cube", **version: Any) -> DatasetVersion:
    """A dataset with one version, ready unless said otherwise."""
    return DatasetVersionFactory(dataset=DatasetFactory(tenant=person.tenant, name=name), number=1, **version)


def page(person: Person, path: str, **query: Any) -> str:
    answer = person.browser().get(path, query)
    assert answer.status_code == 200
    return answer.content.decode()


def names(text: str) -> list[str]:
    return [part.split(">")[1].split("<")[0] for part in text.split("data-row-link")[1:]]


def test_the_list_shows_the_newest_version_with_its_figures(story: Story):
    row = dataset(story.alice, summary=make_summary(cameras=("observation.images.front",), episodes=61))
    DatasetVersionFactory(
        dataset=row.dataset, number=2, state=VersionState.INVALID, reason="no frame at 3 s", summary=None
    )
    dataset(
        story.alice,
        "pick",
        summary=make_summary(cameras=("observation.images.front",), episodes=61),
        size_bytes=1_900_000,
    )
    text = page(story.alice, "/datasets/")
    assert "version 2 of 2" in text
    assert "no frame at 3 s" in text
    assert all(
        part in text for part in ("61<span", "1,220<span", "1.0\u00a0min at 20\u00a0Hz", "front", "1.9\u00a0MB")
    )


@pytest.mark.parametrize(
    ("sort", "wanted"),
    [
        ("", ["gamma", "beta", "alpha"]),  # the newest first
        ("changed", ["alpha", "beta", "gamma"]),
        ("name", ["alpha", "beta", "gamma"]),
        ("-name", ["gamma", "beta", "alpha"]),
        ("-size", ["beta", "gamma", "alpha"]),
        ("episodes", ["gamma", "alpha", "beta"]),
        ("-frames", ["beta", "alpha", "gamma"]),
        ("nonsense", ["gamma", "beta", "alpha"]),
    ],
)
def test_the_order_is_in_the_address(story: Story, sort: str, wanted: list[str]):
    for name, episodes, size_bytes in (("alpha", 10, 1), ("beta", 100, 3), ("gamma", 9, 2)):
        dataset(story.alice, name, summary=make_summary(episodes=episodes), size_bytes=size_bytes)
    assert names(page(story.alice, "/datasets/", sort=sort)) == wanted


def test_search_and_state_filter_the_list_and_are_kept_by_the_heads(story: Story):
    dataset(story.alice, "push cube")
    dataset(story.alice, "push ball", state=VersionState.INVALID, summary=None)
    dataset(story.alice, "stack")
    text = page(story.alice, "/datasets/", q="PUSH", state="ready")
    assert names(text) == ["push cube"]
    assert "?q=PUSH&amp;state=ready&amp;sort=name" in text
    assert "No dataset matches" in page(story.alice, "/datasets/", q="lift")


@pytest.mark.parametrize(
    "query", ["q=%00", "page=" + "9" * 30, "page=last", "state=x", "sort=-", "sort=size__id", "z=1"]
)
def test_no_query_string_breaks_the_list(story: Story, query: str):
    dataset(story.alice)
    assert story.alice.browser().get(f"/datasets/?{query}").status_code == 200


def test_an_empty_list_teaches_with_the_labs_own_names(story: Story):
    text = page(story.bob, "/datasets/")
    assert "No datasets yet" in text
    assert "http://testserver/api/v1/datasets?name=" in text
    assert "Alice&#x27;s lab" in text
    assert 'client.datasets.upload("recording.zip"' in text


def test_as_many_queries_for_fifty_datasets_as_for_one(story: Story, django_assert_max_num_queries, monkeypatch):
    monkeypatch.setattr(shell, "_spend_once", shell._spend_once.__wrapped__)  # else asked every 15 s only
    browser = story.alice.browser()
    dataset(story.alice, "first", recorded_from=make_job(story.alice).pk)
    browser.get("/datasets/")
    with django_assert_max_num_queries(60) as one:
        browser.get("/datasets/")
    for number in range(48):
        dataset(story.alice, f"more {number}", recorded_from=make_job(story.alice).pk)
    with django_assert_max_num_queries(len(one)):
        browser.get("/datasets/")


def test_storage_and_uploads_under_way_are_shown(story: Story):
    UploadFactory(tenant=story.alice.tenant, name="half there", size_bytes=4_000_000, received_bytes=1_000_000)
    storage_add(story.alice.tenant, 12_300_000)
    text = page(story.bob, "/datasets/")
    assert "<b>12.3\u00a0MB</b> stored" in text
    assert all(part in text for part in ("half there", "1.0\u00a0MB of 4.0\u00a0MB", "Resume"))
    assert "Resume" not in page(story.viewer, "/datasets/")


def test_htmx_gets_only_the_part_that_changes(story: Story):
    dataset(story.alice)
    answer = story.alice.browser().get("/datasets/", headers={"HX-Request": "true"})
    assert b"<html" not in answer.content
    assert b"push-cube" in answer.content
    assert "HX-Request" in answer["Vary"]


def test_a_dataset_names_its_versions_jobs_and_lineage(story: Story):
    recorder = make_job(story.alice, name="roll out 7")
    parent = dataset(story.alice, "raw", recorded_from=recorder.pk)
    child = dataset(story.alice, "cut", derived_from=parent)
    job = make_job(story.alice, name="learner")
    with platform_scope():
        type(job).objects.filter(pk=job.pk).update(dataset_version=parent)
    text = page(story.alice, f"/datasets/{parent.dataset_id}/")
    assert all(part in text for part in (f"/jobs/{recorder.pk}/", "roll out 7", f"/jobs/{job.pk}/", "learner"))
    assert f"/datasets/{child.dataset_id}/?version=1" in text
    assert f"/datasets/{parent.dataset_id}/?version=1" in page(story.alice, f"/datasets/{child.dataset_id}/")


def test_the_report_says_what_is_wrong_and_where(story: Story):
    defects = [
        {
            "severity": "warning",
            "code": "dimension_constant",
            "message": "dimension 3 stays at -1",
            "feature": "action",
        },
        {
            "severity": "error",
            "code": "frame_missing",
            "message": "no frame",
            "episode": 7,
            "frame": 12,
            "file": "a.mp4",
        },
    ]
    row = dataset(
        story.alice, state=VersionState.INVALID, summary=None, reason="no frame", report={"defects": defects}
    )
    text = page(story.alice, f"/datasets/{row.dataset_id}/")
    assert "1 error, 1 warning" in text
    assert text.index("frame_missing") < text.index("dimension_constant")
    assert "frame 12, file a.mp4" in text
    assert "This version cannot be used" in text


def test_a_version_that_is_being_read_asks_again_a_ready_one_only_for_what_may_change(story: Story):
    row = dataset(story.alice, state=VersionState.VALIDATING, summary=None)
    whole = f'<div id="dataset" hx-get="/datasets/{row.dataset_id}/?version=1"'
    read = page(story.alice, f"/datasets/{row.dataset_id}/")
    assert (whole in read, 'hx-select="#dataset-side"' in read) == (True, False)
    ready = dataset(story.alice, "done")
    read = page(story.alice, f"/datasets/{ready.dataset_id}/")
    assert '<div id="dataset">' in read
    assert f'id="dataset-side" hx-get="/datasets/{ready.dataset_id}/?version=1" hx-select="#dataset-side"' in read


@pytest.mark.parametrize("wanted", ["2", "x", "-1", "1" * 30])
def test_a_version_that_is_not_there_is_a_missing_page_not_another_version(story: Story, wanted: str):
    row = dataset(story.alice)
    for rest in ("", "spread/"):
        assert story.alice.browser().get(f"/datasets/{row.dataset_id}/{rest}?version={wanted}").status_code == 404


def test_a_foreign_dataset_is_missing_on_every_page(story: Story):
    row = dataset(story.alice, "secret plan")
    browser = story.charlie.browser()
    missing = browser.get(f"/datasets/{uuid.uuid4()}/")
    foreign = browser.get(f"/datasets/{row.dataset_id}/")
    assert (foreign.status_code, foreign.content) == (404, missing.content)
    assert browser.post(f"/datasets/{row.dataset_id}/delete/").status_code == 404
    assert b"secret plan" not in browser.get("/datasets/").content
    assert b"secret plan" not in browser.get("/datasets/upload/").content


def test_markup_in_names_is_shown_as_text(story: Story):
    row = dataset(story.alice, MARKUP, summary=make_summary() | {"tasks": [MARKUP]})
    UploadFactory(tenant=story.alice.tenant, name=MARKUP)
    for path in (
        "/datasets/",
        f"/datasets/{row.dataset_id}/",
        "/datasets/upload/",
        f"/datasets/upload/?dataset={MARKUP}",
    ):
        assert "<img" not in page(story.alice, path)


def test_deleting_needs_what_the_page_showed_and_goes_back_to_the_list(
    story: Story, dataset_root: Path, django_capture_on_commit_callbacks
):
    row = dataset(story.alice)
    browser = story.bob.browser()
    assert browser.post(f"/datasets/{row.dataset_id}/delete/", {"seen": "7"}).status_code == 412
    with django_capture_on_commit_callbacks(execute=True):
        answer = browser.post(f"/datasets/{row.dataset_id}/delete/", {"seen": "1"})
    assert (answer.status_code, answer["Location"]) == (302, "/datasets/")
    with platform_scope():
        assert not Dataset.objects.exists()


def test_what_a_job_learned_from_stays_and_the_page_names_the_job(story: Story):
    job = make_job(story.alice, name="the learner")
    with platform_scope():
        version = job.dataset_version
    text = page(story.alice, f"/datasets/{version.dataset_id}/")
    assert "It cannot be deleted: 1 job learned from it" in text
    answer = story.alice.browser().post(
        f"/datasets/{version.dataset_id}/delete/", {"seen": str(version.dataset.version)}
    )
    assert (answer.status_code, b"the learner" in answer.content, b'role="alert"' in answer.content) == (
        409,
        True,
        True,
    )
    one = story.alice.browser().post(f"/datasets/{version.dataset_id}/versions/{version.number}/delete/")
    assert (one.status_code, b"the learner" in one.content) == (409, True)


def test_one_unused_version_is_deleted_alone(story: Story, dataset_root: Path):
    row = dataset(story.alice)
    DatasetVersionFactory(dataset=row.dataset, number=2)
    answer = story.bob.browser().post(f"/datasets/{row.dataset_id}/versions/2/delete/")
    assert answer.status_code == 302
    with platform_scope():
        assert list(DatasetVersion.objects.values_list("number", flat=True)) == [1]


@pytest.mark.parametrize(("text", "wanted"), [("30", 30), ("", None)])
def test_how_long_versions_are_kept_is_said_on_the_page(story: Story, text: str, wanted: int | None):
    row = dataset(story.alice, sealed_at=timezone.now())
    browser = story.bob.browser()
    assert browser.post(f"/datasets/{row.dataset_id}/keep/", {"keep_days": text, "seen": "1"}).status_code == 302
    with platform_scope():
        assert Dataset.objects.get().keep_days == wanted
    said = "30 days after they became ready" if wanted else "For ever"
    assert said in page(story.alice, f"/datasets/{row.dataset_id}/")


@pytest.mark.parametrize("text", ["0", "36501", "-3", "soon", "1e3", "0000000019999999", "9" * 5000])
def test_no_number_of_days_is_refused_with_what_is_allowed_and_stays_typed(story: Story, text: str):
    row = dataset(story.alice)
    answer = story.bob.browser().post(f"/datasets/{row.dataset_id}/keep/", {"keep_days": text, "seen": "1"})
    assert (answer.status_code, b"allowed: 1 to 36500" in answer.content) == (422, True)
    shown = answer.content.decode()
    assert f'placeholder="ever" value="{text[:40]}"' in shown
    here = f"/datasets/{row.dataset_id}/"
    assert all(link.startswith(here) for link in re.findall(r'(?:href|action|hx-get)="([^"]*)\?version=', shown))
    assert 'href="?' not in shown


def test_a_viewer_is_shown_no_act_and_no_upload(story: Story):
    row = dataset(story.alice)
    text = page(story.viewer, f"/datasets/{row.dataset_id}/")
    assert all(part not in text for part in ("delete-dialog", "Save</button>", "New version"))
    assert story.viewer.browser().get("/datasets/upload/").status_code == 403


def test_the_upload_page_knows_quota_parents_and_what_is_under_way(story: Story):
    upload = UploadFactory(tenant=story.alice.tenant, name="half there", size_bytes=100, received_bytes=40)
    row = dataset(story.alice)
    text = page(story.bob, "/datasets/upload/", dataset="push-cube")
    assert all(
        part in text for part in (f'data-upload-row="{upload.pk}"', f'<option value="{row.pk}"', 'value="push-cube"')
    )
    assert '"freeBytes"' in text


def test_the_spread_draws_a_figure_per_dimension(story: Story, dataset_root: Path):
    row = dataset(story.alice, summary=make_summary(cameras=(CAMERA,), state_dim=3, episodes=3))
    write_v21(storage.stored_path(row.storage_key))
    text = page(story.alice, f"/datasets/{row.dataset_id}/spread/")
    assert text.count("data-figure=") == 3 + 2 + 1  # state, action, lengths
    assert text.count("<rect") > 5 * 10
    assert 'hx-swap-oob="true"' in text
    assert "<html" not in text


def test_numbers_are_shown_with_the_reason_where_there_is_no_distribution(story: Story, dataset_root: Path):
    row = dataset(story.alice)
    text = page(story.alice, f"/datasets/{row.dataset_id}/spread/")
    assert "There is no preview of this: its bytes are not on this server." in text
    assert "−0.900" in text
    assert "data-figure=" not in text


def spread_of(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "low": -1.0,
        "high": 1.0,
        "counts": [1, 0, 4],
        "degenerate": False,
        "outside": 0.02,
        "farthest": 1.0,
    } | fields


def test_a_histograms_bars_fill_its_box_and_few_values_are_still_seen():
    spread = {"action": [spread_of("a0", counts=[1, 0, 1000]), spread_of("a1", farthest=FAR + 1)], "state": None}
    first, second = groups_of(make_summary(), spread)[0].rows
    assert [(bar.x, bar.height) for bar in first.bars] == [(0.0, 1.0), (64.0, 16.0)]
    assert (first.is_far, second.is_far) == (False, True)


def test_names_in_figures_are_no_markup():
    summary = make_summary(action_dim=1, state_dim=0)
    summary["schema"]["action"]["names"] = [MARKUP]
    figure = groups_of(summary, {"action": [spread_of(MARKUP)], "state": None})[0].figures[0].figure
    assert "<img" not in str(figure)


def test_a_vector_of_very_many_dimensions_has_its_first_ones_drawn():
    many = FIGURES_MAX + 5
    group = groups_of(
        make_summary(action_dim=many), {"action": [spread_of(f"a{n}") for n in range(many)], "state": None}
    )[0]
    assert (len(group.rows), len(group.figures), group.hidden) == (many, FIGURES_MAX, 5)


def test_lengths_are_told_by_their_range():
    told = lengths_of({"lengths": {"starts": [10, 15], "width": 5, "counts": [3, 1]}})
    assert told.told.endswith("10 to 19 frames")
    assert told.figure["data"][0]["customdata"] == ["10–14", "15–19"]
