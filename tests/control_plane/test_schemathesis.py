"""The API against its own description, with generated requests: nothing breaks, every answer is as described.

Owner and stranger send the same requests about the owner's rows; the stranger never gets a 2xx for one of them.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.core.cache import cache
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from control_plane.management.commands.openapi import description
from jobs import runtime_client
from jobs.models import Artifact
from tenants.scope import platform_scope
from tests.support.everybody import PARTS, rows_of, undone
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.routes import api_routes
from tests.support.story import Person, Story

EXAMPLES = 8  # requests of each operation; all together about seven hundred
UNDESCRIBED = {"GET /api/v1/schema", "GET /api/v1/docs"}
OPERATIONS = [
    (method, re.sub(r"<\w+:(\w+)>", r"{\1}", path))
    for method, path in (route.split(" ") for route in api_routes() if route not in UNDESCRIBED)
]
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
RATE = {"successes": 1, "episodes": 2, "rate": 0.5, "low": 0.09, "high": 0.91}
TOTALS = {"planned": 2, "counted": 2, "errors": 0, "success_once": RATE, "success_at_end": RATE}
REPORT = {"tasks": [], "suites": [], "overall": TOTALS, "protocol_hashes": []}

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume"),  # the server proper is asynchronous
]


@pytest.fixture(scope="module")
def api() -> Iterator[Any]:
    """The description, with the application itself behind it, in this process and on this test's connection."""
    schema = schemathesis.openapi.from_dict(json.loads(description()))
    schema.app = get_wsgi_application()
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield schema
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def ids(story: Story, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Alice's rows, among them a report whose bytes the runtime has."""
    runtime, content = InMemoryRuntime(), json.dumps(REPORT).encode()
    runtime.artifacts["a-1"] = content
    monkeypatch.setattr(runtime_client, "connect", lambda: runtime)
    rows = rows_of(story)
    with platform_scope():
        digest = hashlib.sha256(content).hexdigest()
        Artifact.objects.filter(pk=rows["artifact_id"]).update(size_bytes=len(content), sha256=digest)
    return rows


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[f"{method} {path}" for method, path in OPERATIONS])
def test_an_operation_never_breaks_and_answers_as_described(
    api: Any, method: str, path: str, story: Story, ids: dict[str, str], dataset_root: Path
):
    operation = api[path][method]

    @given(case=operation.as_strategy(), whose=st.sampled_from(["owner", "stranger", "nobody's"]))
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    def send(case: Any, whose: str) -> None:
        names = [name for name in case.path_parameters if name in ids]
        if whose != "nobody's":
            case.path_parameters.update({name: ids[name] for name in names})
        if case.query and "wait" in case.query:
            case.query["wait"] = 0  # long polls are tested where they belong
        answer = _call(case, story.charlie if whose == "stranger" else story.alice)
        case.validate_response(answer, checks=CHECKS)
        if whose == "stranger" and set(names) - set(PARTS):
            assert answer.status_code >= 400, answer.content[:500]

    send()


def _call(case: Any, person: Person) -> Any:
    """The answer; its effects are undone."""
    cache.clear()  # hundreds of requests in a minute are more than anybody may send
    with undone():
        return case.call(headers={"Authorization": f"Bearer {person.key}"})
