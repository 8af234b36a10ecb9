"""Episodes as videos and distributions over REST: ranges, kept once, made once, nobody else's."""

import io
import threading
import uuid
from pathlib import Path

import av
import pytest

from tenants.datasets import preview, preview_cache, storage
from tenants.datasets.models import DatasetVersion, VersionState
from tests.support.downloads import content_of
from tests.support.factories import DatasetFactory, DatasetVersionFactory, make_summary
from tests.support.lerobot_v21 import CAMERA, write_v21
from tests.support.story import Person, Story


@pytest.fixture(autouse=True)
def _own_folder(settings, tmp_path: Path) -> None:
    settings.JOYNEXUS_PREVIEW_ROOT = tmp_path / "previews"


@pytest.fixture
def version(bob: Person, dataset_root: Path) -> DatasetVersion:
    """Three episodes of 12, 8 and 10 frames, whose one camera is stored."""
    summary = make_summary(cameras=(CAMERA,), episodes=3)
    row = DatasetVersionFactory(dataset=DatasetFactory(tenant=bob.tenant), summary=summary)
    write_v21(storage.stored_path(row.storage_key))
    return row


def video(person: Person, version: DatasetVersion, episode: int = 0, camera: str = CAMERA, **headers: str):
    path = f"/api/v1/dataset-versions/{version.pk}/episodes/{episode}/videos/{camera}"
    return person.api.get(path, headers=headers)


def distribution(person: Person, version: DatasetVersion):
    return person.api.get(f"/api/v1/dataset-versions/{version.pk}/distribution")


def test_an_episode_is_a_video_with_all_its_frames(bob: Person, version: DatasetVersion):
    answer = video(bob, version, 1)
    content = content_of(answer)
    assert (answer.status_code, answer["Content-Type"], answer["Accept-Ranges"]) == (200, "video/mp4", "bytes")
    assert int(answer["Content-Length"]) == len(content)
    assert {"immutable", "private"} <= set(answer["Cache-Control"].replace(",", "").split())
    with av.open(io.BytesIO(content)) as container:
        assert len(list(container.decode(video=0))) == 8


def test_a_player_gets_the_part_it_asks_for(bob: Person, version: DatasetVersion):
    whole = content_of(video(bob, version))
    part = video(bob, version, Range="bytes=100-299")
    assert (part.status_code, part["Content-Range"]) == (206, f"bytes 100-299/{len(whole)}")
    assert content_of(part) == whole[100:300]
    rest = video(bob, version, Range="bytes=200-")
    assert (rest.status_code, content_of(rest)) == (206, whole[200:])
    behind = video(bob, version, Range=f"bytes={len(whole)}-")
    assert (behind.status_code, behind["Content-Range"]) == (416, f"bytes */{len(whole)}")


def test_a_beginning_of_something_else_gets_everything_and_a_known_one_nothing(bob: Person, version: DatasetVersion):
    tag = video(bob, version)["ETag"]
    assert video(bob, version, Range="bytes=5-9", **{"If-Range": '"other"'}).status_code == 200
    assert video(bob, version, Range="bytes=5-9", **{"If-Range": tag}).status_code == 206
    assert video(bob, version, **{"If-None-Match": tag}).status_code == 304


def test_it_is_made_once_and_kept(bob: Person, version: DatasetVersion, monkeypatch):
    first = content_of(video(bob, version))
    monkeypatch.setattr(preview, "read_version", lambda *_, **__: pytest.fail("a reader was started"))
    assert content_of(video(bob, version)) == first


def test_who_comes_while_it_is_made_waits_for_it(tmp_path: Path):
    made, begun, go_on = [], threading.Event(), threading.Event()
    version_id = uuid.uuid4()

    def make(to: Path) -> None:
        made.append(to)
        begun.set()
        assert go_on.wait(10)
        to.write_bytes(b"film")

    read: list[bytes] = []

    def ask() -> None:
        with preview_cache.open_file(version_id, "v.mp4", make) as file:
            read.append(file.read())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    threads[0].start()
    assert begun.wait(10)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert (len(made), read) == (1, [b"film"] * 4)


def test_what_fails_leaves_nothing_and_is_tried_again(settings):
    version_id = uuid.uuid4()

    def fail(to: Path) -> None:
        to.write_bytes(b"half")
        raise RuntimeError("the reader died")

    with pytest.raises(RuntimeError):
        preview_cache.open_file(version_id, "v.mp4", fail)
    with preview_cache.open_file(version_id, "v.mp4", lambda to: to.write_bytes(b"whole") and None) as file:
        assert file.read() == b"whole"
    kept = [path.name for path in settings.JOYNEXUS_PREVIEW_ROOT.rglob("*") if path.is_file() and path.stat().st_size]
    assert kept == ["v.mp4"]


def test_a_video_that_is_being_sent_survives_the_trim(bob: Person, version: DatasetVersion):
    answer = video(bob, version)
    assert preview_cache.trim(0) >= 1
    assert len(content_of(answer)) == int(answer["Content-Length"])


def test_videos_count_against_the_place_of_previews(bob: Person, version: DatasetVersion, settings):
    settings.JOYNEXUS_PREVIEW_MAX_BYTES = 800  # of which a video may have an eighth
    answer = video(bob, version)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:joynexus:problem:preview-unavailable")
    assert "more than 100 bytes" in answer.json()["detail"]


@pytest.mark.parametrize(("episode", "camera", "pointer"), [(3, CAMERA, "episode"), (0, "elsewhere", "camera")])
def test_what_is_not_there_is_a_404_naming_it(bob: Person, version: DatasetVersion, episode, camera, pointer):
    answer = video(bob, version, episode, camera)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (404, pointer)


def test_only_a_ready_version_has_videos_and_distributions(bob: Person):
    version = DatasetVersionFactory(dataset=DatasetFactory(tenant=bob.tenant), state=VersionState.VALIDATING)
    assert (video(bob, version).status_code, distribution(bob, version).status_code) == (409, 409)


def test_nobody_else_sees_them_not_even_kept(story: Story, version: DatasetVersion):
    assert (video(story.bob, version).status_code, distribution(story.bob, version).status_code) == (200, 200)
    assert (video(story.charlie, version).status_code, distribution(story.charlie, version).status_code) == (404, 404)


def test_a_distribution_has_a_row_per_dimension(bob: Person, version: DatasetVersion):
    answer = distribution(bob, version)
    assert "immutable" in answer["Cache-Control"]
    told = answer.json()
    assert [row["name"] for row in told["state"]] == ["x", "y", "z"]
    assert all(sum(row["counts"]) == 30 for row in told["state"] + told["action"])
    assert sum(told["lengths"]["counts"]) == 3


def test_episodes_of_one_instruction_by_the_page(bob: Person, version: DatasetVersion, monkeypatch):
    monkeypatch.setattr(preview, "EPISODES_PER_PAGE", 1)
    path = f"/api/v1/dataset-versions/{version.pk}/preview"
    told = bob.api.get(path, {"task": "push the cube", "page": 2}).json()
    assert (told["total"], told["pages"], [row["index"] for row in told["episodes"]]) == (2, 2, [2])
    assert bob.api.get(path, {"task": "--fly"}).json()["total"] == 0
