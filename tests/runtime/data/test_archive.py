"""Archives: a good one unpacks, a hostile one leaves nothing behind."""

import os
import random
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from gpu_runtime.data.archive import ArchiveLimits, extract_archive
from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.fingerprint import dataset_fingerprint
from gpu_runtime.data.validation import validate_dataset

GOOD = {"meta/info.json": b"{}", "data/a.parquet": b"PAR1"}


def pack(path: Path, entries: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def pack_folder(path: Path, folder: Path, outer: str = "") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, outer + file.relative_to(folder).as_posix())
    return path


def refused(path: Path, target: Path, limits: ArchiveLimits | None = None) -> DatasetError:
    """The refusal, after checking that nothing is left behind, inside the target or beside it."""
    beside = set(target.parent.iterdir()) | {target}
    with pytest.raises(DatasetError) as caught:
        extract_archive(path, target, limits)
    assert list(target.iterdir()) == []
    assert set(target.parent.iterdir()) == beside
    return caught.value


@pytest.mark.parametrize("outer", ["", "my_dataset/"])
def test_a_dataset_unpacks_with_or_without_one_folder_around_it(
    pristine: dict[str, Path], tmp_path: Path, outer: str
) -> None:
    extract_archive(pack_folder(tmp_path / "a.zip", pristine["v3.0"], outer), tmp_path / "out")
    report = validate_dataset(tmp_path / "out")
    assert report.ok
    assert report.summary is not None
    files = [path.relative_to(pristine["v3.0"]).as_posix() for path in pristine["v3.0"].rglob("*") if path.is_file()]
    assert report.summary.fingerprint == dataset_fingerprint(pristine["v3.0"], files)


def test_what_a_desktop_adds_is_left_out(tmp_path: Path) -> None:
    added = {"set/.DS_Store": b"x", "__MACOSX/set/._a": b"x"}
    archive = pack(tmp_path / "a.zip", {f"set/{name}": content for name, content in GOOD.items()} | added)
    extract_archive(archive, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["data", "meta"]


@pytest.mark.parametrize(
    "name",
    ["../evil", "data/../../evil", "/etc/evil", "..\\evil", "C:evil", "data/a\x01b", "a/" * 20 + "b", "n" * 300],
)
def test_a_path_that_leads_outside_or_cannot_be_one_is_refused(tmp_path: Path, name: str) -> None:
    error = refused(pack(tmp_path / "a.zip", GOOD | {name: b"evil"}), tmp_path / "out")
    assert error.code == "archive_path"
    assert error.file is not None


@pytest.mark.parametrize(
    ("mode", "code"),
    [(stat.S_IFLNK, "archive_link"), (stat.S_IFCHR, "archive_entry"), (stat.S_IFIFO, "archive_entry")],
)
def test_links_devices_and_pipes_are_refused(tmp_path: Path, mode: int, code: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, content in GOOD.items():
            archive.writestr(name, content)
        info = zipfile.ZipInfo("data/link")
        info.external_attr = (mode | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    error = refused(tmp_path / "a.zip", tmp_path / "out")
    assert (error.code, error.file) == (code, "data/link")


def test_an_encrypted_entry_is_refused(tmp_path: Path) -> None:
    content = bytearray(pack(tmp_path / "a.zip", GOOD).read_bytes())
    central = content.index(b"PK\x01\x02")
    content[central + 8] |= 1
    (tmp_path / "a.zip").write_bytes(content)
    assert refused(tmp_path / "a.zip", tmp_path / "out").code == "archive_encrypted"


def test_another_compression_is_refused(tmp_path: Path) -> None:
    error = refused(pack(tmp_path / "a.zip", GOOD, zipfile.ZIP_LZMA), tmp_path / "out")
    assert "allowed: stored, deflated" in str(error)


def test_a_bomb_is_stopped_long_before_it_is_unpacked(tmp_path: Path) -> None:
    archive = pack(tmp_path / "a.zip", GOOD | {"data/zeros": bytes(200 * 2**20)})
    assert archive.stat().st_size < 2**20
    assert refused(archive, tmp_path / "out").code == "archive_bomb"


def test_many_small_bombs_count_together(tmp_path: Path) -> None:
    archive = pack(tmp_path / "a.zip", GOOD | {f"data/{number}": bytes(2**20) for number in range(8)})
    assert refused(archive, tmp_path / "out", ArchiveLimits(ratio_free_bytes=2**21)).code == "archive_bomb"


def test_real_bytes_count_not_the_declared_ones(tmp_path: Path) -> None:
    content = bytearray(pack(tmp_path / "a.zip", {"data/zeros": bytes(2**20)} | GOOD).read_bytes())
    central = content.index(b"PK\x01\x02")
    struct.pack_into("<I", content, central + 24, 10)  # claims 10 bytes
    (tmp_path / "a.zip").write_bytes(content)
    assert refused(tmp_path / "a.zip", tmp_path / "out", ArchiveLimits(bytes_max=1000)).code in (
        "archive_too_large",
        "archive_unreadable",  # a checksum that no longer fits
    )


def test_entries_that_share_their_bytes_count_each_time(tmp_path: Path) -> None:
    """Fifield's overlap: every entry has an ordinary ratio, all together unpack to far more than the archive."""
    block = os.urandom(2**10) * 100
    plain = pack(tmp_path / "plain.zip", GOOD | {"data/x": block}).read_bytes()
    start = plain.index(b"PK\x01\x02")
    end = plain.index(b"PK\x05\x06")
    last = plain.rindex(b"PK\x01\x02")
    copies = [plain[last:end].replace(b"data/x", f"data/{letter}".encode()) for letter in "abcdefghijklmnopqrstuvw"]
    central = plain[start:end] + b"".join(copies)
    tail = bytearray(plain[end:])
    struct.pack_into("<HHI", tail, 8, len(copies) + 3, len(copies) + 3, len(central))
    (tmp_path / "a.zip").write_bytes(plain[:start] + central + tail)
    error = refused(tmp_path / "a.zip", tmp_path / "out", ArchiveLimits(ratio_free_bytes=2**20, ratio_max=50))
    assert error.code in ("archive_bomb", "archive_unreadable")


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (ArchiveLimits(files_max=1), "archive_too_many_files"),
        (ArchiveLimits(bytes_max=5), "archive_too_large"),
        (ArchiveLimits(file_bytes_max=3), "archive_too_large"),
        (ArchiveLimits(depth_max=1), "archive_path"),
    ],
)
def test_each_limit_holds(tmp_path: Path, limits: ArchiveLimits, code: str) -> None:
    assert refused(pack(tmp_path / "a.zip", GOOD), tmp_path / "out", limits).code == code


def test_a_name_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("meta/info.json", "x")
        archive.writestr("data/a", "x")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("data/a", "x")
    assert refused(tmp_path / "a.zip", tmp_path / "out").file == "data/a"


def test_a_file_that_is_also_a_folder_is_refused(tmp_path: Path) -> None:
    assert refused(pack(tmp_path / "a.zip", GOOD | {"data/a.parquet/b": b"x"}), tmp_path / "out")


@pytest.mark.parametrize("entries", [{}, {"a/x": b"1", "b/meta/info.json": b"{}"}, {"a/b/meta/info.json": b"{}"}])
def test_an_archive_without_a_dataset_says_where_it_was_looked_for(tmp_path: Path, entries: dict[str, bytes]) -> None:
    assert refused(pack(tmp_path / "a.zip", entries), tmp_path / "out").code == "archive_without_dataset"


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"Rar!\x1a\x07", os.urandom(1000)])
def test_what_is_no_zip_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    assert refused(tmp_path / "a.zip", tmp_path / "out").code == "archive_unreadable"


def test_a_folder_with_content_is_never_written_into(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/precious").write_text("keep")
    with pytest.raises(DatasetError, match="not empty"):
        extract_archive(pack(tmp_path / "a.zip", GOOD), tmp_path / "out")
    assert (tmp_path / "out/precious").read_text() == "keep"


def test_random_damage_to_an_archive_never_escapes(tmp_path: Path) -> None:
    tmp_path = tmp_path / "folder"
    tmp_path.mkdir()
    original = pack(tmp_path / "good.zip", GOOD | {"data/b": os.urandom(200)}).read_bytes()
    chance = random.Random(0)
    for number in range(300):
        content = bytearray(original)
        for _ in range(chance.randint(1, 6)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        (tmp_path / "a.zip").write_bytes(content)
        target = tmp_path / f"out{number}"
        try:
            extract_archive(tmp_path / "a.zip", target)
        except DatasetError:
            assert list(target.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith("out")} == {"good.zip", "a.zip"}
