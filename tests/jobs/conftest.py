"""A runtime in memory, connected as the platform's own."""

import pytest

from jobs import runtime_client
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.runtime_contract import gateway, served  # noqa: F401 - fixtures


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> InMemoryRuntime:
    runtime = InMemoryRuntime()
    monkeypatch.setattr(runtime_client, "connect", lambda: runtime)
    return runtime
