"""A runtime in memory, connected as the platform's own."""

import pytest

from jobs import runtime_client
from tests.support.memory_runtime import InMemoryRuntime


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> InMemoryRuntime:
    runtime = InMemoryRuntime()
    monkeypatch.setattr(runtime_client, "connect", lambda: runtime)
    return runtime
