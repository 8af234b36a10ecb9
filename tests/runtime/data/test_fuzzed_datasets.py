"""Hundreds of damaged datasets: every one gets a report that names files, none crashes the reader or eats memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_runtime.data.validation import validate_dataset
from tests.support.lerobot_v21 import DATA

ROOT = Path(__file__).resolve().parents[3]
PEAK_BYTES_MAX = 600 * 2**20


@pytest.mark.parametrize(("version", "mutants"), [("v2.1", 150), ("v3.0", 150)])
def test_damaged_datasets_are_reported_and_never_crash_the_reader(
    pristine: dict[str, Path], tmp_path: Path, version: str, mutants: int
) -> None:
    command = [sys.executable, "-m", "tests.support.fuzz_datasets", pristine[version], tmp_path, mutants, 0]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    outcome = json.loads(result.stdout)
    assert outcome["mutants"] == mutants
    assert outcome["peak_bytes"] < PEAK_BYTES_MAX
    assert outcome["still_valid"] < mutants / 2
    assert len(outcome["codes"]) >= 8  # damage of many kinds, not one that masks the rest
    assert "unreadable" not in outcome["codes"], "an exception was caught only by the last net: give it its own code"


def test_metadata_on_which_arrow_would_end_the_process_are_only_an_error(v21: Path) -> None:
    """Found by fuzzing: a flipped size in a column chunk's metadata aborts whoever asks for that chunk."""
    path = v21 / DATA.format(1)
    original = path.read_bytes()
    footer = len(original) - 8 - int.from_bytes(original[-8:-4], "little")
    for offset in range(footer, len(original) - 8, 7):
        path.write_bytes(original[:offset] + bytes([original[offset] ^ 0x10]) + original[offset + 1 :])
        assert all(defect.file is not None for defect in validate_dataset(v21).defects)
