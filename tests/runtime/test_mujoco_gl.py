"""What MuJoCo draws with: one decision per process, and a clear refusal."""

import os

import pytest

from gpu_runtime.environments import mujoco_gl
from gpu_runtime.environments.errors import SimulatorMissing
from gpu_runtime.environments.mujoco_gl import choose_gl


@pytest.fixture(autouse=True)
def undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "")
    choose_gl.cache_clear()


@pytest.fixture(autouse=True, scope="module")
def decide_anew_afterwards():
    yield
    choose_gl.cache_clear()


def test_what_is_chosen_draws_and_is_set_for_every_library() -> None:
    assert choose_gl() in ("egl", "osmesa")
    assert os.environ["MUJOCO_GL"] == choose_gl()


def test_a_choice_of_the_user_is_tried_and_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "glx3")
    with pytest.raises(SimulatorMissing, match=r"MUJOCO_GL: .*glx3: .*libegl1 or libosmesa6.*allowed: egl, osmesa"):
        choose_gl()


def test_the_second_is_taken_where_the_first_does_not_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    real = mujoco_gl._failure
    monkeypatch.setattr(mujoco_gl, "_failure", lambda backend: "no device" if backend == "egl" else real(backend))
    assert choose_gl() == "osmesa"


def test_without_any_every_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mujoco_gl, "_failure", lambda backend: f"no {backend} here")
    with pytest.raises(SimulatorMissing, match="none of egl: no egl here; osmesa: no osmesa here"):
        choose_gl()
