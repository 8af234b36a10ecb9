"""Datasets as they were validated: the files must still be the ones the control plane bound to the job."""

import os
import threading
from pathlib import Path

from gpu_runtime.data.declared import declared_from
from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.fingerprint import dataset_fingerprint
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.protocol.schema import DatasetSummary


class DatasetVerifier:
    """Opens datasets; hashes the files of each once per process (``hash_files``). Safe to use from several threads."""

    def __init__(self, *, hash_files: bool) -> None:
        self._hash_files = hash_files
        self._verified: set[tuple[Path, str]] = set()
        self._lock = threading.Lock()

    def open(self, folder: Path, summary: DatasetSummary) -> LeRobotDataset:
        """Raises DatasetError with code ``dataset_changed`` naming what differs from ``summary``."""
        declared = declared_from(summary.schema_).model_dump(mode="json")
        dataset = LeRobotDataset.open(folder, declared)
        found = {
            "schema": dataset.schema.signature,
            "episodes": len(dataset.episodes),
            "frames": dataset.frame_count,
        }
        bound = {"schema": summary.schema_.signature, "episodes": summary.episodes, "frames": summary.frames}
        for name, value in found.items():
            if value != bound[name]:
                raise DatasetError("dataset_changed", f"{name} is {value}, but {bound[name]} was validated")
        if self._hash_files:
            self._verify_files(folder, summary.fingerprint)
        return dataset

    def _verify_files(self, folder: Path, fingerprint: str) -> None:
        with self._lock:  # a second job on the same dataset waits for the hash instead of computing it again
            if (folder, fingerprint) in self._verified:
                return
            found = dataset_fingerprint(folder, _files(folder))
            if found != fingerprint:
                message = f"the files hash to {found}, but {fingerprint} was validated"
                raise DatasetError("dataset_changed", message)
            self._verified.add((folder, fingerprint))


def _files(folder: Path) -> list[str]:
    """Every regular file, relative to ``folder``; links are not followed."""
    return [
        path.relative_to(folder).as_posix()
        for here, _, names in os.walk(folder)
        for path in (Path(here, name) for name in names)
        if path.is_file() and not path.is_symlink()
    ]
