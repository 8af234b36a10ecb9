"""Preview of a ready version over REST: pages, curves, frames; read in a child process, kept, bounded."""

import io
import os
import resource
import time
import uuid
from pathlib import Path

import pytest
from PIL import Image

from tenants.datasets import preview, preview_cache, preview_child, storage
from tenants.datasets.models import DatasetVersion, VersionState
from tests.support.factories import DatasetFactory, DatasetVersionFactory, make_summary
from tests.support.lerobot_v21 import CAMERA, DATA, write_v21
from tests.support.story import Person, Story


@pytest.fixture(autouse=True)
def _own_folder(settings, tmp_path: Path) -> None:
    settings.JOYNEXUS_PREVIEW_ROOT = tmp_path / "previews"


def ready(person: Person, **fields: object) -> DatasetVersion:
    summary = make_summary(cameras=(CAMERA,), episodes=3)
    return DatasetVersionFactory(
        dataset=DatasetFactory(tenant=person.tenant),
        summary=summary,
        schema_signature="5" * 64,
        statistics_hash="7" * 64,
        **fields,
    )


@pytest.fixture
def version(bob: Person, dataset_root: Path) -> DatasetVersion:
    """Three episodes of 12, 8 and 10 frames, whose one camera is stored."""
    row = ready(bob)
    write_v21(storage.stored_path(row.storage_key))
    return row


def get(person: Person, version: DatasetVersion, rest: str):
    return person.api.get(f"/api/v1/dataset-versions/{version.pk}/{rest}")


def test_a_version_at_a_glance(bob: Person, version: DatasetVersion):
    answer = get(bob, version, "preview").json()
    assert (answer["page"], answer["pages"], answer["schema_signature"]) == (1, 1, "5" * 64)
    assert answer["summary"]["statistics"]["action"]["q99"] == [0.9, 0.9]
    assert [(row["index"], row["length"], row["task"]) for row in answer["episodes"]] == [
        (0, 12, "push the cube"),
        (1, 8, "pick the cube"),
        (2, 10, "push the cube"),
    ]


def test_episodes_come_by_the_page(bob: Person, version: DatasetVersion, monkeypatch):
    monkeypatch.setattr(preview, "EPISODES_PER_PAGE", 2)
    first, second, third = (get(bob, version, f"preview?page={page}").json() for page in (1, 2, 3))
    assert first["pages"] == 2
    assert [[row["index"] for row in page["episodes"]] for page in (first, second, third)] == [[0, 1], [2], []]


def test_curves_of_an_episode(bob: Person, version: DatasetVersion):
    answer = get(bob, version, "episodes/1?max_points=77")
    assert "immutable" in answer["Cache-Control"]
    series = answer.json()
    assert (series["index"], series["length"], series["frames"]) == (1, 8, list(range(8)))
    assert [curve["name"] for curve in series["state"]] == ["x", "y", "z"]
    assert series["action"][0]["min"][0] == pytest.approx(0.540302)


def test_a_frame_is_a_jpeg_a_browser_may_keep(bob: Person, version: DatasetVersion):
    answer = get(bob, version, f"episodes/2/frames/{CAMERA}?index=9")
    assert (answer.status_code, answer["Content-Type"]) == (200, "image/jpeg")
    with Image.open(io.BytesIO(answer.content)) as image:
        assert image.size == (48, 32)


def test_the_second_look_needs_no_reader_and_not_even_the_bytes(bob: Person, version: DatasetVersion, monkeypatch):
    paths = ("preview", "episodes/0", f"episodes/0/frames/{CAMERA}?index=3")
    first = [get(bob, version, path).content for path in paths]
    monkeypatch.setattr(preview, "read_version", lambda *_: pytest.fail("a reader was started"))
    assert [get(bob, version, path).content for path in paths] == first


def test_a_small_set_takes_less_than_a_second_of_a_processor(bob: Person, version: DatasetVersion):
    used_s = []
    for episode in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert get(bob, version, f"episodes/{episode}").status_code == 200
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(used_s) < 1.0


@pytest.mark.parametrize(
    ("rest", "pointer"),
    [
        ("episodes/3", "episode"),
        (f"episodes/1/frames/{CAMERA}?index=8", "?index"),
        ("episodes/1/frames/elsewhere", "camera"),
        (f"episodes/7/frames/{CAMERA}", "episode"),
    ],
)
def test_what_is_not_in_it_is_404_and_named(bob: Person, version: DatasetVersion, rest: str, pointer: str):
    answer = get(bob, version, rest)
    assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (404, [pointer])


@pytest.mark.parametrize(
    ("rest", "pointer"),
    [
        ("preview?page=0", "?page"),
        ("preview?page=x", "?page"),
        ("episodes/0?max_points=49", "?max_points"),
        ("episodes/0?max_points=2001", "?max_points"),
        (f"episodes/0/frames/{CAMERA}?index=-1", "?index"),
    ],
)
def test_every_bad_parameter_is_refused_by_name(bob: Person, version: DatasetVersion, rest: str, pointer: str):
    answer = get(bob, version, rest)
    assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (422, [pointer])


def test_a_camera_whose_name_looks_like_an_option_is_only_a_name(bob: Person, version: DatasetVersion):
    answer = get(bob, version, "episodes/0/frames/--cpu-s")
    assert answer.status_code == 404


@pytest.mark.parametrize("state", [VersionState.RECEIVED, VersionState.VALIDATING, VersionState.INVALID])
def test_only_a_ready_version_has_a_preview(bob: Person, state: VersionState, dataset_root: Path):
    row = ready(bob, state=state)
    for rest in ("preview", "episodes/0", f"episodes/0/frames/{CAMERA}"):
        answer = get(bob, row, rest)
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:joynexus:problem:not-ready")


def test_a_version_whose_bytes_are_gone_or_damaged_is_refused_and_not_kept(bob: Person, version: DatasetVersion):
    file = storage.stored_path(version.storage_key) / DATA.format(1)
    content = file.read_bytes()
    file.write_bytes(b"PAR1")
    answer = get(bob, version, "episodes/1")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:joynexus:problem:preview-unavailable")
    file.write_bytes(content)
    assert get(bob, version, "episodes/1").status_code == 200


def test_a_reader_that_takes_too_long_is_ended(bob: Person, version: DatasetVersion, monkeypatch):
    monkeypatch.setattr(preview_child, "WALL_LIMIT_S", 0.01)
    answer = get(bob, version, "episodes/1")
    assert (answer.status_code, "longer than" in answer.json()["detail"]) == (409, True)


def test_only_a_few_readers_run_at_once(bob: Person, version: DatasetVersion, monkeypatch):
    monkeypatch.setattr(preview_child, "_PLACE_WAIT_S", 0.01)
    with preview_child._place(), preview_child._place():
        answer = get(bob, version, "episodes/1")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:joynexus:problem:preview-busy")
    assert get(bob, version, "episodes/1").status_code == 200


def test_nobody_else_sees_it_not_even_kept(story: Story, version: DatasetVersion):
    assert get(story.bob, version, "episodes/1").status_code == 200
    assert get(story.charlie, version, "episodes/1").status_code == 404


def test_a_deleted_version_leaves_no_preview(
    bob: Person, version: DatasetVersion, settings, django_capture_on_commit_callbacks
):
    get(bob, version, "episodes/1")
    with django_capture_on_commit_callbacks(execute=True):
        bob.api.delete(f"/api/v1/dataset-versions/{version.pk}")
    assert [path for path in settings.JOYNEXUS_PREVIEW_ROOT.rglob("*") if path.is_file()] == []


def test_what_was_not_used_for_longest_goes_first():
    ids = [uuid.uuid4() for _ in range(3)]
    for number, version_id in enumerate(ids):
        preview_cache.write(version_id, "a.json", b"x" * 100)
        _age(version_id, 100 - number)
    preview_cache.read(ids[0], "a.json")
    assert preview_cache.trim(200) == 1
    assert [preview_cache.read(version_id, "a.json") is not None for version_id in ids] == [True, False, True]


def test_a_process_that_writes_much_looks_after_the_limit_itself(settings):
    settings.JOYNEXUS_PREVIEW_MAX_BYTES = 1000
    preview_cache._written.clear()
    for _ in range(100):
        preview_cache.write(uuid.uuid4(), "a.json", b"x" * 50)
    files = [path for path in settings.JOYNEXUS_PREVIEW_ROOT.rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) <= 1000 + 1000 // 8


def test_a_disk_that_takes_nothing_refuses_no_answer(bob: Person, version: DatasetVersion, settings):
    settings.JOYNEXUS_PREVIEW_ROOT.write_text("a file where the folder should be")
    assert get(bob, version, "episodes/1").status_code == 200


def _age(version_id: uuid.UUID, seconds: float) -> None:
    path = preview_cache._folder(version_id) / "a.json"
    os.utime(path, (time.time() - seconds,) * 2)
