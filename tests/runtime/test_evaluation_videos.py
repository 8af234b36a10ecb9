"""Videos of an evaluation: what is filmed, when nothing is drawn any more, and that no figure depends on it."""

from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest

from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.session import EnvironmentSession, SessionSpec
from gpu_runtime.models.slots import Slot
from gpu_runtime.workflows.evaluation_result import Cause
from gpu_runtime.workflows.evaluation_videos import Film, VideoShelf, draw
from tests.support.environments import REACH
from tests.support.evaluations import evaluated, planned, untimed
from tests.support.exported_adapters import Demonstrated
from tests.support.rl_jobs import reach_policy


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> Demonstrated:
    return Demonstrated.record(REACH, tmp_path_factory.mktemp("reach") / "data", episodes=40)


@pytest.fixture(scope="module")
def trained(demonstrated: Demonstrated) -> Slot:
    return demonstrated.train(steps=300)


# Videos


async def test_videos_show_real_time_in_a_browsers_format_and_no_more_than_asked_for(
    trained: Slot, demonstrated: Demonstrated, tmp_path: Path
) -> None:
    protocol = planned(trained, range(50_000, 50_008))
    result = await evaluated(trained, demonstrated, protocol, shelf=VideoShelf(tmp_path, 2))
    filmed = [record for record in result.episodes if record.video]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(Path(r.video).name for r in filmed if r.video)
    won = [record for record in filmed if record.success_once]
    assert len(won) == 2
    assert all(Path(r.video or "").name == f"joynexus_Reach-v0_seed{r.seed}_success.mp4" for r in won)
    with av.open(won[0].video) as container:
        stream = container.streams.video[0]
        frames = sum(1 for _ in container.decode(stream))
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert (frames, stream.average_rate) == (won[0].steps + 10, 10)


@pytest.mark.parametrize(
    ("per_outcome", "kept", "drawn"),
    [
        (1, ["success"], [True, True, False]),  # the check, the failure that was still wanted, and all others
        (1, [], [True, True]),  # a success is still waited for
        (1, ["success", "fail"], [False, False]),
        (0, [], [False, False]),
    ],
)
async def test_nothing_is_drawn_for_a_policy_without_cameras_once_no_film_is_wanted_and_figures_stay_the_same(
    demonstrated: Demonstrated,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    per_outcome: int,
    kept: list[str],
    drawn: list[bool],
) -> None:
    opened: list[bool] = []
    pool_open = EnvironmentPool.open

    async def watched(pool: EnvironmentPool, spec: SessionSpec, **options) -> EnvironmentSession:
        opened.append(spec.kind.cameras != ())
        return await pool_open(pool, spec, **options)

    blind = SimpleNamespace(policy=reach_policy(demonstrated.backbone))
    protocol = planned(blind, range(50_000, 50_005), max_steps=4)  # type: ignore[arg-type]
    whole = await evaluated(blind, demonstrated, protocol, parallel=1, shelf=VideoShelf(tmp_path / "all", 99))  # type: ignore[arg-type]
    monkeypatch.setattr(EnvironmentPool, "open", watched)
    shelf = VideoShelf(tmp_path / "some", per_outcome, kept)
    result = await evaluated(blind, demonstrated, protocol, parallel=1, shelf=shelf)  # type: ignore[arg-type]
    assert opened == drawn
    assert all(record.video for record in whole.episodes)
    films = [record.seed for record in result.episodes if record.video]
    assert films == ([50_000] if any(drawn) else [])
    assert result.protocol_hash == whole.protocol_hash
    assert [untimed(record) for record in result.episodes] == [untimed(record) for record in whole.episodes]


async def test_a_policy_that_sees_is_played_in_one_kind_of_environment_whatever_is_filmed(
    trained: Slot, demonstrated: Demonstrated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = set()
    pool_open = EnvironmentPool.open

    async def watched(pool: EnvironmentPool, spec: SessionSpec, **options) -> EnvironmentSession:
        kinds.add(spec.kind)
        return await pool_open(pool, spec, **options)

    monkeypatch.setattr(EnvironmentPool, "open", watched)
    protocol = planned(trained, range(50_000, 50_004))
    await evaluated(trained, demonstrated, protocol, shelf=VideoShelf(tmp_path, 1, ["success", "fail"]))
    (kind,) = kinds
    assert kind.cameras == ("top",)


async def test_a_video_that_cannot_be_written_changes_no_figure(
    trained: Slot, demonstrated: Demonstrated, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    result = await evaluated(trained, demonstrated, planned(trained, [50_000]), shelf=VideoShelf(tmp_path / "file", 1))
    (record,) = result.episodes
    assert record.video is None
    assert record.video_error
    assert record.cause is not Cause.ERROR


async def test_a_video_that_cannot_be_written_leaves_its_place_to_the_next_one(
    demonstrated: Demonstrated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, tried = Film.write, []

    def full_once(film: Film, path: Path, **options) -> None:
        tried.append(film.seed)
        if len(tried) == 1:
            raise OSError("no space left on device")
        write(film, path, **options)

    monkeypatch.setattr(Film, "write", full_once)
    blind = SimpleNamespace(policy=reach_policy(demonstrated.backbone))
    protocol = planned(blind, range(50_000, 50_004), max_steps=4)  # type: ignore[arg-type]
    shelf = VideoShelf(tmp_path / "films", 1, ["success"])
    result = await evaluated(blind, demonstrated, protocol, parallel=1, shelf=shelf)  # type: ignore[arg-type]
    assert tried == [50_000, 50_001]
    assert [record.video_error for record in result.episodes] == ["no space left on device", None, None, None]
    (film,) = [record.video for record in result.episodes if record.video]
    assert Path(film).name == "joynexus_Reach-v0_seed50001_fail.mp4"
    assert Path(film).stat().st_size > 0


def test_a_picture_shows_every_view_unchanged_side_by_side_with_the_words_below() -> None:
    views = [np.full((64, 64, 3), 200, np.uint8), np.arange(64 * 64 * 3, dtype=np.uint8).reshape(64, 64, 3)]
    picture = draw(views, ["Push the cube onto the target. " * 8, "seed 7  step 12"])
    assert picture.shape[1] == 512
    assert picture.shape[0] % 2 == 0
    np.testing.assert_array_equal(picture[:256:4, :256:4], views[0])
    np.testing.assert_array_equal(picture[:256:4, 256::4], views[1])
    assert (picture[256:] > 150).any(), "no words"
    assert (draw(views, ["a"]) != draw(views, ["b"])).any()
