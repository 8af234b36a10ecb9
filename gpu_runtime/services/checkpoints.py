"""The durable policy versions of each attempt: newest few, found again after a restart."""

import contextlib
import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from gpu_runtime.models.checkpoint import load_slot, slot_files
from gpu_runtime.models.errors import CheckpointError
from gpu_runtime.models.rl_checkpoint import load_rl_slot, rl_slot_files
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.models.slot_files import SlotFiles
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.messages import PolicyVersionPublished
from gpu_runtime.store.files import remove, sweep_unfinished, sync_folder
from gpu_runtime.training.mounted import MountedJob

_NAME = re.compile(r"step-(\d{10})")


AnySlot = TypeVar("AnySlot", Slot, RlSlot)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[AnySlot]):
    """A slot as it was saved. ``broken``: what is wrong with each newer checkpoint that could not be used."""

    slot: AnySlot
    broken: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCopy:
    """One attempt's slot after a step, to be written down."""

    job_id: str
    attempt: int
    step: int
    files: SlotFiles


class Checkpoints:
    """``root``/<job>/<attempt>/step-<ten digits>; all methods but ``copy`` block on the disk."""

    def __init__(self, root: Path, keep: int) -> None:
        self._root = root
        self._keep = keep
        sweep_unfinished(root)

    def copy(self, job: MountedJob) -> SlotCopy:
        """The slot as it stands. No step of it may run meanwhile; the copy is nobody else's. Touches no disk."""
        slot = job.slot
        files = rl_slot_files(slot) if isinstance(slot, RlSlot) else slot_files(slot)
        return SlotCopy(job_id=job.job_id, attempt=job.attempt, step=slot.step, files=files.copied())

    def write(self, copy: SlotCopy) -> PolicyVersionPublished:
        """Make a copy durable and drop all but the newest."""
        folder = self._folder(copy.job_id, copy.attempt)
        copy.files.write(folder / _name(copy.step))
        for old in self._all(copy.job_id, copy.attempt)[: -self._keep]:
            shutil.rmtree(old, ignore_errors=True)
        return _described(folder / _name(copy.step), copy.files.document["policy_version"], copy.step)

    def describe(self, job: MountedJob) -> PolicyVersionPublished:
        """The durable policy version that the slot is at."""
        path = self._folder(job.job_id, job.attempt) / _name(job.slot.step)
        return _described(path, job.slot.policy_version, job.slot.step)

    def load(self, job_id: str, attempt: int, **options: object) -> Loaded[Slot] | None:
        """The newest slot of an attempt that is whole, or None if it has no checkpoint. ``options`` as ``load_slot``.

        Newer ones that are broken are set aside. Raises CheckpointError, and moves nothing, when none is whole.
        """
        return self._load(job_id, attempt, lambda path: load_slot(path, **options))  # type: ignore[arg-type]

    def load_rl(self, job_id: str, attempt: int, **options: object) -> Loaded[RlSlot] | None:
        """The same of a reinforcement-learning job; ``options`` as ``load_rl_slot``."""
        return self._load(job_id, attempt, lambda path: load_rl_slot(path, **options))  # type: ignore[arg-type]

    def _load(self, job_id: str, attempt: int, read: Callable[[Path], AnySlot]) -> Loaded[AnySlot] | None:
        broken: list[tuple[Path, CheckpointError]] = []
        for path in reversed(self._all(job_id, attempt)):
            try:
                slot = read(path)
            except CheckpointError as error:
                broken.append((path, error))
            else:
                for damaged, _ in broken:
                    _set_aside(damaged)
                return Loaded(slot=slot, broken=tuple(str(error) for _, error in broken))
        if broken:
            raise broken[0][1]
        return None

    def remove(self, job_id: str, attempt: int) -> int:
        """Remove an attempt's checkpoints for good, broken ones included; returns their bytes. Raises OSError.

        ValueError for what is no name of a job.
        """
        if not job_id or Path(job_id).name != job_id or job_id.startswith("."):
            raise ValueError(f"job_id {job_id!r} is no name")
        freed = remove(self._folder(job_id, attempt))
        with contextlib.suppress(OSError):  # another attempt of the job has its own beside it, or there is none
            (self._root / job_id).rmdir()
        return freed

    def forget(self, job_id: str, attempt: int) -> None:
        """Remove an attempt's checkpoints, e.g. those another journal's attempt of the same name left behind."""
        shutil.rmtree(self._folder(job_id, attempt), ignore_errors=True)

    def _folder(self, job_id: str, attempt: int) -> Path:
        return self._root / job_id / str(attempt)

    def _all(self, job_id: str, attempt: int) -> list[Path]:
        folder = self._folder(job_id, attempt)
        return sorted(path for path in folder.glob("step-*") if _NAME.fullmatch(path.name))


def _name(step: int) -> str:
    return f"step-{step:010d}"


def _described(path: Path, version: int, step: int) -> PolicyVersionPublished:
    return PolicyVersionPublished(version=version, step=step, checkpoint=path.name, sha256=_hash(path))


def _set_aside(folder: Path) -> None:
    """Out of the way of the step that is made again, and kept for whoever wants to know what happened to it."""
    target = folder.with_name(f"broken-{folder.name}")
    shutil.rmtree(target, ignore_errors=True)
    folder.rename(target)
    sync_folder(folder.parent)


def _hash(folder: Path) -> str:
    """SHA-256 over names and bytes of the files in ``folder``, in name order."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
