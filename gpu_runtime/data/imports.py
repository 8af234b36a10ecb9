"""Validate what was imported: a directory, or a zip archive that is unpacked first."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpu_runtime.data.archive import extract_archive
from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.files import watch_reads
from gpu_runtime.data.validation import validate_dataset
from gpu_runtime.protocol.schema import ValidationReport


def validate_path(
    path: Path,
    *,
    extract_to: Path | None = None,
    declared: Mapping[str, Any] | None = None,
    watcher: Callable[[str], None] | None = None,
) -> ValidationReport:
    """Report on the dataset at ``path``. An archive is unpacked into ``extract_to``, else into a scratch folder."""
    if watcher is not None:
        watcher(path.name)
        watch_reads(watcher)
    if path.is_dir():
        return validate_dataset(path, declared)
    if extract_to is not None:
        return _validate_archive(path, extract_to, declared)
    with tempfile.TemporaryDirectory(prefix="dataset-") as scratch:
        return _validate_archive(path, Path(scratch), declared)


def _validate_archive(path: Path, target: Path, declared: Mapping[str, Any] | None) -> ValidationReport:
    try:
        extract_archive(path, target)
    except DatasetError as error:
        if error.file is None:
            error.file = path.name
        return ValidationReport(defects=(error.to_defect(),), summary=None)
    return validate_dataset(target, declared)
