"""The reader of a tenant's bytes: `python -m gpu_runtime preview`, a child with limits of its own; a few at a time."""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from pydantic import ValidationError

from gpu_runtime.protocol.schema import Defect
from tenants.datasets import storage
from tenants.datasets.models import DatasetVersion
from tenants.datasets.validation import child_environment, die_with_parent
from tenants.errors import ApplicationError, FieldError

logger = logging.getLogger(__name__)

WALL_LIMIT_S = 30.0
_NOT_THERE = 3  # exit status of the child: it tells what it did not find
_FIELD_OF_DEFECT = {"frame_missing": "?index", "camera_missing": "camera", "episode_missing": "episode"}
_places = threading.BoundedSemaphore(2)  # children of this process at once
_PLACE_WAIT_S = 10.0


def read_version(version: DatasetVersion, options: list[str], *, wall_limit_s: float | None = None) -> bytes:
    """What the child writes to its standard output. Raises ApplicationError 404, 409 and 503."""
    path = storage.stored_path(version.storage_key)
    if not path.is_dir():
        logger.error("the bytes of dataset version %s are gone from %s", version.pk, path)
        raise unavailable("its bytes are not on this server")
    declared = ["--declared", json.dumps(version.declared)] if version.declared else []
    command = [sys.executable, "-m", "gpu_runtime", "preview", str(path), *declared, *options]
    return _read(version, command, WALL_LIMIT_S if wall_limit_s is None else wall_limit_s)


def refused(pointer: str, code: str, detail: str, status: int) -> ApplicationError:
    error = FieldError(pointer=pointer, code=code, detail=detail)
    return ApplicationError(code="not_found", status=status, detail=detail, errors=(error,))


def unavailable(why: str) -> ApplicationError:
    return ApplicationError(code="preview_unavailable", status=409, detail=f"There is no preview of this: {why}.")


def busy() -> ApplicationError:
    return ApplicationError(
        code="preview_busy", status=503, detail="Too many previews are being read; try again in a moment."
    )


def _read(version: DatasetVersion, command: list[str], wall_limit_s: float) -> bytes:
    with _place():
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                timeout=wall_limit_s,
                env=child_environment(),
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise unavailable(f"reading it takes longer than {wall_limit_s:g} s") from None
    if done.returncode == 0:
        return done.stdout
    if done.returncode == _NOT_THERE:
        raise _not_there(done.stdout)
    words = done.stderr.decode(errors="replace")[-2000:]
    logger.error("preview of %s ended with %d: %s", version.pk, done.returncode, words)
    raise unavailable("reading it takes more memory or time than a preview may")


@contextmanager
def _place() -> Iterator[None]:
    """One of the few places for readers. Raises ApplicationError 503 if none gets free soon."""
    if not _places.acquire(timeout=_PLACE_WAIT_S):
        raise busy()
    try:
        yield
    finally:
        _places.release()


def _not_there(told: bytes) -> ApplicationError:
    try:
        defect = Defect.model_validate_json(told)
    except ValidationError:
        return unavailable("the reader failed")
    pointer = _FIELD_OF_DEFECT.get(defect.code)
    if pointer is None:
        return unavailable(defect.message)
    return refused(pointer, defect.code, f"There is no {defect.message}.".replace("no no ", "no "), 404)
