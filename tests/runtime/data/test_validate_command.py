"""The validate command: one JSON report on stdout, whatever happens to the reader."""

import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpu_runtime.data.cli import Limits, validate_in_child
from gpu_runtime.data.files import existing_file
from gpu_runtime.data.validation import views
from gpu_runtime.protocol.schema import ValidationReport
from tests.support.lerobot_v21 import CAMERA, DATA, VIDEO, edit_lines

COMMAND = "import sys; from gpu_runtime.data.cli import main; sys.exit(main(sys.argv[1:]))"


def validate(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", COMMAND, *map(str, arguments)]
    root = Path(__file__).resolve().parents[3]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=root, check=False)


def report_of(result: subprocess.CompletedProcess[str]) -> ValidationReport:
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 1
    return ValidationReport.model_validate_json(result.stdout)


def test_a_good_directory_gives_a_report_without_defects(pristine: dict[str, Path]) -> None:
    report = report_of(validate(pristine["v2.1"], "--declared", json.dumps({"rotations": {CAMERA: 180}})))
    assert report.ok
    assert report.summary is not None
    assert report.summary.schema_.cameras[0].rotation_deg == 180


def test_a_bad_dataset_is_a_report_too(v21: Path) -> None:
    (v21 / DATA.format(0)).write_bytes(b"PAR1")
    report = report_of(validate(v21))
    assert not report.ok
    assert report.defects[0].file == DATA.format(0)


def test_an_archive_is_unpacked_where_asked_and_validated(pristine: dict[str, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for file in sorted(pristine["v3.0"].rglob("*")):
            archive.write(file, "top/" + file.relative_to(pristine["v3.0"]).as_posix())
    assert report_of(validate(tmp_path / "a.zip", "--extract-to", tmp_path / "kept")).ok
    assert (tmp_path / "kept/meta/info.json").is_file()
    assert report_of(validate(tmp_path / "a.zip")).ok


def test_a_file_that_is_no_archive_is_a_defect(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_text("hello")
    (defect,) = report_of(validate(tmp_path / "a.zip", "--extract-to", tmp_path / "out")).defects
    assert (defect.code, defect.file) == ("archive_unreadable", "a.zip")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "does not exist"),
        ([".", "--declared", "{"], "--declared is not JSON"),
        ([".", "--declared", "[]"], "--declared must be a JSON object"),
        ([".", "--extract-to", "x"], "PATH is a directory"),
        ([".", "--memory-mib", "0"], "at least 1"),
        ([], "PATH"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_why(arguments: list[str], message: str) -> None:
    result = validate(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stdout == ""


@pytest.fixture(scope="module")
def inflated(pristine: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few kilobytes of run-length encoded rows that unpack to hundreds of megabytes."""
    rows = 6_000_000
    root = Path(shutil.copytree(pristine["v2.1"], tmp_path_factory.mktemp("inflated") / "d"))
    zeros = pa.array(np.zeros(rows, np.int64))
    columns: dict[str, pa.Array] = dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), zeros)
    columns["timestamp"] = pa.array(np.zeros(rows, np.float32))
    for name, dim in (("observation.state", 3), ("action", 2)):
        columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * dim, np.float32)), dim)
    pq.write_table(pa.table(columns), root / DATA.format(1))
    edit_lines(root / "meta/episodes.jsonl", lambda episodes: episodes[1].update(length=rows))
    assert (root / DATA.format(1)).stat().st_size < 2**20
    return root


def test_a_reader_beyond_its_cpu_seconds_is_reported_with_the_file_it_read(inflated: Path) -> None:
    (defect,) = report_of(validate(inflated, "--cpu-s", 1)).defects
    assert (defect.code, defect.file) == ("cpu_limit", DATA.format(1))


def test_a_reader_beyond_its_memory_is_reported_with_the_file_it_read(inflated: Path) -> None:
    report = report_of(validate(inflated, "--memory-mib", 700))
    assert not report.ok
    assert DATA.format(1) in {defect.file for defect in report.defects if defect.code == "memory_limit"}


def test_a_reader_that_crashes_is_reported_with_the_file_it_read(
    monkeypatch: pytest.MonkeyPatch, pristine: dict[str, Path]
) -> None:
    def crash(root: Path, relative: str) -> object:
        existing_file(root, relative)
        os.kill(os.getpid(), signal.SIGSYS)
        return None

    monkeypatch.setattr(views, "read_video_facts", crash)
    report = validate_in_child(pristine["v2.1"], extract_to=None, declared=None, limits=Limits())
    assert [(defect.code, defect.file) for defect in report.defects] == [("reader_crashed", VIDEO.format(0))]


def test_the_command_loads_no_torch_and_its_parent_no_reader() -> None:
    code = (
        "import sys, gpu_runtime.data.cli; print(sorted({'torch', 'pyarrow', 'av', 'numpy'} & set(sys.modules)));"
        "import gpu_runtime.data.imports; print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split("\n")[:2] == ["[]", "False"]
