"""The files of a dataset directory: only regular files of known kinds, nothing that points elsewhere or executes."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from gpu_runtime.data.validation.findings import Findings

FILES_MAX = 1_000_000
DEPTH_MAX = 12
PICKLE_LIKE = {".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".npy", ".npz", ".joblib", ".dill"}
CODE_LIKE = {".py", ".pyc", ".sh", ".so", ".dll", ".exe", ".ipynb"}
KNOWN = {
    ".json",
    ".jsonl",
    ".parquet",
    ".mp4",
    ".md",
    ".txt",
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
    ".yaml",
    ".yml",
    ".csv",
}
KNOWN_NAMES = {"license", "readme", "notice", ".gitattributes", ".gitignore"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Regular files, relative to the root, in path order, with their total size."""

    files: tuple[str, ...]
    size_bytes: int


def check_tree(root: Path, findings: Findings) -> Tree:
    """List the regular files without following a link or opening anything; report everything else."""
    files: dict[str, int] = {}

    def report(error: OSError) -> None:
        findings.error("folder_unreadable", str(error.strerror), file=_relative(root, Path(error.filename or root)))

    for folder, names, entries in os.walk(root, followlinks=False, onerror=report):
        here = Path(folder)
        depth = len(here.relative_to(root).parts)
        if depth >= DEPTH_MAX:
            findings.error("path_too_deep", f"folders nest deeper than {DEPTH_MAX}", file=_relative(root, here))
            names.clear()
        for name in [*names, *entries]:
            _check_entry(root, here / name, files, findings)
        if len(files) > FILES_MAX:
            findings.error("too_many_files", f"more than {FILES_MAX} files", file=_relative(root, here))
            break
    return Tree(files=tuple(sorted(files)), size_bytes=sum(files.values()))


def _relative(root: Path, path: Path) -> str:
    """Path as text that survives JSON: undecodable bytes are escaped."""
    return path.relative_to(root).as_posix().encode("utf-8", "backslashreplace").decode()


def _check_entry(root: Path, path: Path, files: dict[str, int], findings: Findings) -> None:
    name = _relative(root, path)
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        findings.error("symlink", f"{name} is a symbolic link; copy the file instead", file=name)
    elif stat.S_ISREG(status.st_mode):
        files[path.relative_to(root).as_posix()] = status.st_size
        _check_kind(path, name, findings)
    elif not stat.S_ISDIR(status.st_mode):
        findings.error("special_file", f"{name} is a device, pipe or socket", file=name)


def _check_kind(path: Path, name: str, findings: Findings) -> None:
    suffix = path.suffix.lower()
    if suffix in PICKLE_LIKE or _looks_pickled(path, suffix):
        findings.error("pickle", f"{name} may hold pickled objects, which run code when loaded: remove it", file=name)
    elif suffix in CODE_LIKE:
        findings.warning("unknown_file", f"{name} is code; it is stored and never executed", file=name)
    elif suffix not in KNOWN and path.name.lower() not in KNOWN_NAMES:
        findings.warning("unknown_file", f"{name} is of an unknown kind and is not read", file=name)


def _looks_pickled(path: Path, suffix: str) -> bool:
    """A pickle (protocol 2 and up) behind another or no suffix."""
    if suffix in {".parquet", ".mp4", ".png", ".jpg", ".jpeg", ".gif"}:
        return False  # their readers check the content themselves
    with path.open("rb") as file:
        head = file.read(3)
    return len(head) == 3 and head[0] == 0x80 and 2 <= head[1] <= 5
