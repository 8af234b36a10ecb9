"""Looking into a ready version without downloading it: episodes, curves, frames.

A tenant's bytes are read by `python -m gpu_runtime preview`, a child process with limits of its own; a few at a time.
"""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from pydantic import ValidationError

from gpu_runtime.protocol.schema import Defect
from tenants.datasets import preview_cache, storage
from tenants.datasets.models import DatasetVersion, VersionState
from tenants.datasets.validation import child_environment, die_with_parent
from tenants.errors import ApplicationError, FieldError

logger = logging.getLogger(__name__)

EPISODES_PER_PAGE = 100
WALL_LIMIT_S = 30.0
_POINTS = (2000, 1000, 500, 250, 100, 50)  # resolutions that are kept; others are rounded down to one of them
_NOT_THERE = 3  # exit status of the child: it tells what it did not find
_FIELD_OF_DEFECT = {"frame_missing": "?index", "camera_missing": "camera", "episode_missing": "episode"}
_places = threading.BoundedSemaphore(2)  # children of this process at once
_PLACE_WAIT_S = 10.0


def episodes(version: DatasetVersion, page: int) -> list[dict[str, Any]]:
    """Index, length and instruction of `EPISODES_PER_PAGE` episodes; ``page`` counts from 1."""
    first = str((page - 1) * EPISODES_PER_PAGE)
    options = ["episodes", "--first", first, "--count", str(EPISODES_PER_PAGE)]
    found: list[dict[str, Any]] = json.loads(_answer(version, f"episodes-{page}.json", options))
    return found


def episode(version: DatasetVersion, index: int, max_points: int) -> dict[str, Any]:
    """Curves of one episode's state and action in at most ``max_points`` buckets. Raises ApplicationError."""
    points = str(next((points for points in _POINTS if points <= max_points), _POINTS[-1]))
    options = ["episode", "--points", points, "--", str(index)]
    series: dict[str, Any] = json.loads(_answer(version, f"episode-{index}-{points}.json", options))
    return series


def frame(version: DatasetVersion, index: int, camera: str, number: int) -> bytes:
    """One frame, upright, as JPEG. Raises ApplicationError."""
    cameras = (version.summary or {}).get("schema", {}).get("cameras", [])
    place = next((place for place, view in enumerate(cameras) if view["key"] == camera), None)
    if place is None:
        known = ", ".join(view["key"] for view in cameras) or "none"
        raise _refused("camera", "camera_missing", f"There is no camera {camera!r}; there are: {known}.", 404)
    options = ["frame", "--", str(index), camera, str(number)]
    return _answer(version, f"frame-{index}-{place}-{number}.jpg", options)


def require_ready(version: DatasetVersion) -> None:
    """Only what is sealed is shown: it was read whole and found good. Raises ApplicationError 409."""
    if version.state != VersionState.READY:
        detail = f"This version is {version.state}; only a ready one has a preview."
        raise ApplicationError(code="not_ready", status=409, detail=detail)


def _answer(version: DatasetVersion, name: str, options: list[str]) -> bytes:
    require_ready(version)
    kept = preview_cache.read(version.pk, name)
    if kept is not None:
        return kept
    path = storage.stored_path(version.storage_key)
    if not path.is_dir():
        logger.error("the bytes of dataset version %s are gone from %s", version.pk, path)
        raise _unavailable("its bytes are not on this server")
    declared = ["--declared", json.dumps(version.declared)] if version.declared else []
    content = _read(version, [sys.executable, "-m", "gpu_runtime", "preview", str(path), *declared, *options])
    preview_cache.write(version.pk, name, content)
    return content


def _read(version: DatasetVersion, command: list[str]) -> bytes:
    with _place():
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                timeout=WALL_LIMIT_S,
                env=child_environment(),
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _unavailable(f"reading it takes longer than {WALL_LIMIT_S:g} s") from None
    if done.returncode == 0:
        return done.stdout
    if done.returncode == _NOT_THERE:
        raise _not_there(done.stdout)
    words = done.stderr.decode(errors="replace")[-2000:]
    logger.error("preview of %s ended with %d: %s", version.pk, done.returncode, words)
    raise _unavailable("reading it takes more memory or time than a preview may")


@contextmanager
def _place() -> Iterator[None]:
    """One of the few places for readers. Raises ApplicationError 503 if none gets free soon."""
    if not _places.acquire(timeout=_PLACE_WAIT_S):
        raise ApplicationError(
            code="preview_busy", status=503, detail="Too many previews are being read; try again in a moment."
        )
    try:
        yield
    finally:
        _places.release()


def _not_there(told: bytes) -> ApplicationError:
    try:
        defect = Defect.model_validate_json(told)
    except ValidationError:
        return _unavailable("the reader failed")
    pointer = _FIELD_OF_DEFECT.get(defect.code)
    if pointer is None:
        return _unavailable(defect.message)
    return _refused(pointer, defect.code, f"There is no {defect.message}.".replace("no no ", "no "), 404)


def _refused(pointer: str, code: str, detail: str, status: int) -> ApplicationError:
    error = FieldError(pointer=pointer, code=code, detail=detail)
    return ApplicationError(code="not_found", status=status, detail=detail, errors=(error,))


def _unavailable(why: str) -> ApplicationError:
    return ApplicationError(code="preview_unavailable", status=409, detail=f"There is no preview of this: {why}.")
