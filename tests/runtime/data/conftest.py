"""One valid dataset of each format, written once per session and copied for tests that break it."""

import shutil
from pathlib import Path

import pytest

from tests.support.lerobot_v21 import write_v21
from tests.support.lerobot_v30 import write_v30


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Read-only originals by format."""
    root = tmp_path_factory.mktemp("pristine")
    return {"v2.1": write_v21(root / "v21"), "v3.0": write_v30(root / "v30")}


@pytest.fixture
def v21(pristine: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine["v2.1"], tmp_path / "v21"))


@pytest.fixture
def v30(pristine: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine["v3.0"], tmp_path / "v30"))
