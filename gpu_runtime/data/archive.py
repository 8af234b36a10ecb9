"""Unpack an uploaded zip archive safely: nothing outside the target, only regular files, real bytes counted."""

import os
import shutil
import stat
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.info import INFO_FILE

_BLOCK_BYTES = 2**20
_IGNORED_NAMES = {".DS_Store", "Thumbs.db"}
_IGNORED_FOLDERS = {"__MACOSX"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """Bounds on what an archive may unpack to. ``ratio_max`` applies beyond ``ratio_free_bytes``."""

    files_max: int = 200_000
    bytes_max: int = 200 * 2**30
    file_bytes_max: int = 20 * 2**30
    ratio_max: int = 100
    ratio_free_bytes: int = 16 * 2**20
    depth_max: int = 12
    name_bytes_max: int = 1000


def extract_archive(archive: Path, target: Path, limits: ArchiveLimits | None = None) -> None:
    """Unpack the dataset in ``archive`` into ``target``, which must not exist or be empty.

    A single folder around the dataset is dropped. On any refusal nothing is left in ``target``. Raises DatasetError
    naming the entry.
    """
    limits = limits or ArchiveLimits()
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise DatasetError("target_not_empty", f"{target.name} is not empty")
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = _checked_entries(opened, limits)
            _Extraction(opened, archive.stat().st_size, limits).run(entries, target)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError, RuntimeError) as error:
        _empty(target)
        if isinstance(error, DatasetError):
            raise
        raise DatasetError("archive_unreadable", f"{archive.name} is not a readable zip archive: {error}") from error
    except BaseException:
        _empty(target)
        raise


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _checked_entries(opened: zipfile.ZipFile, limits: ArchiveLimits) -> dict[str, zipfile.ZipInfo]:
    """Files to write by their path inside the dataset; every entry is checked before anything is written."""
    infos = opened.infolist()
    if len(infos) > limits.files_max:
        raise DatasetError("archive_too_many_files", f"{len(infos)} entries; at most {limits.files_max} are allowed")
    entries: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        parts = _checked_name(info, limits)
        _checked_kind(info)
        if info.is_dir() or parts[-1] in _IGNORED_NAMES or parts[0] in _IGNORED_FOLDERS:
            continue
        name = "/".join(parts)
        if name in entries:
            raise DatasetError("archive_entry", "the name occurs twice", file=name)
        entries[name] = info
    return _without_outer_folder(entries)


def _checked_name(info: zipfile.ZipInfo, limits: ArchiveLimits) -> tuple[str, ...]:
    """Parts of a relative path; ``orig_filename`` is what the archive says before zipfile mends it."""
    name = info.orig_filename
    shown = name.encode("utf-8", "backslashreplace").decode()[:200]
    parts = PurePosixPath(name).parts
    windows = "\\" in name or (len(name) > 1 and name[1] == ":")
    if name.startswith("/") or windows or ".." in parts or not parts:
        raise DatasetError("archive_path", f"entry {shown!r} leads outside the archive", file=shown)
    if len(name.encode("utf-8", "replace")) > limits.name_bytes_max or any(ord(letter) < 32 for letter in name):
        raise DatasetError("archive_path", f"entry {shown!r} is too long or holds control characters", file=shown)
    if max(len(part.encode("utf-8", "replace")) for part in parts) > 255:
        raise DatasetError("archive_path", f"entry {shown!r}: a part has more than 255 bytes", file=shown)
    if len(parts) > limits.depth_max:
        raise DatasetError("archive_path", f"entry {shown!r}: more than {limits.depth_max} folders deep", file=shown)
    return parts


def _checked_kind(info: zipfile.ZipInfo) -> None:
    """Only plain, unencrypted files and folders, stored or deflated."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = "a symbolic link" if kind == stat.S_IFLNK else "a device, pipe or socket"
        raise DatasetError("archive_link" if kind == stat.S_IFLNK else "archive_entry", what, file=info.filename)
    if info.flag_bits & 0x1:
        raise DatasetError("archive_encrypted", "the entry is encrypted", file=info.filename)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DatasetError(
            "archive_entry", f"compression method {info.compress_type}; allowed: stored, deflated", file=info.filename
        )


def _without_outer_folder(entries: dict[str, zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """Drop the single folder that holds the dataset, where there is one."""
    if INFO_FILE in entries:
        return entries
    tops = {name.split("/", 1)[0] for name in entries}
    if len(tops) != 1 or f"{(top := next(iter(tops)))}/{INFO_FILE}" not in entries:
        raise DatasetError(
            "archive_without_dataset",
            f"the archive needs {INFO_FILE} at its top or in its only folder; it has at its top: "
            f"{', '.join(sorted(tops)[:5])[:200] or 'nothing'}",
            file=INFO_FILE,
        )
    return {name[len(top) + 1 :]: info for name, info in entries.items()}


class _Extraction:
    """Writes entries while counting what they really unpack to: declared sizes lie."""

    def __init__(self, opened: zipfile.ZipFile, archive_bytes: int, limits: ArchiveLimits) -> None:
        self._opened, self._archive_bytes, self._limits = opened, archive_bytes, limits
        self._total = 0

    def run(self, entries: dict[str, zipfile.ZipInfo], target: Path) -> None:
        for name, info in entries.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(name, info, path)

    def _write(self, name: str, info: zipfile.ZipInfo, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        written = 0
        with self._opened.open(info) as source, os.fdopen(os.open(path, flags, 0o644), "wb") as sink:
            while block := source.read(_BLOCK_BYTES):
                written += len(block)
                self._total += len(block)
                self._check(name, info, written)
                sink.write(block)

    def _check(self, name: str, info: zipfile.ZipInfo, written: int) -> None:
        limits = self._limits
        if written > limits.file_bytes_max or self._total > limits.bytes_max:
            raise DatasetError("archive_too_large", f"unpacks to more than {limits.bytes_max} bytes", file=name)
        # The whole archive too: entries that share their bytes each have a harmless ratio.
        for real, stored in ((written, info.compress_size), (self._total, self._archive_bytes)):
            if real > limits.ratio_free_bytes and real > limits.ratio_max * max(stored, 1):
                raise DatasetError("archive_bomb", f"unpacks to over {limits.ratio_max} times its size", file=name)
