"""One running platform for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.support.stack import Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    platform = Stack(tmp_path_factory.mktemp("platform"))
    platform.start()
    yield platform
    platform.stop()
