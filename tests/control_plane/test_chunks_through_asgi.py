"""A chunk larger than any other body reaches its file through the whole ASGI application."""

import hashlib
import os
from pathlib import Path

import httpx
import pytest
from channels.db import database_sync_to_async

from control_plane.asgi import application
from tenants.datasets import storage
from tenants.datasets.models import Upload
from tenants.scope import platform_scope
from tests.support.story import Person

CONTENT = os.urandom(5 * 2**20)


def received() -> bytes:
    with platform_scope():
        return storage.chunks_path(Upload.objects.get().pk).read_bytes()


@pytest.mark.django_db(transaction=True)
async def test_a_chunk_beyond_the_common_limit_arrives_and_one_beyond_its_own_is_cut_off(
    bob: Person, dataset_root: Path
) -> None:
    headers = {"Authorization": f"Bearer {bob.key}", "Host": "localhost"}
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
        said = {"name": "push", "size_bytes": 10**9, "sha256": "0" * 64}
        start = await http.post("/api/v1/uploads", json=said, headers={"Idempotency-Key": "k"})
        assert start.status_code == 201, start.text
        path, chunk = start.headers["Location"], {"Content-Type": "application/octet-stream", "Upload-Offset": "0"}
        digest = {"X-Content-SHA256": hashlib.sha256(CONTENT).hexdigest()}
        answer = await http.patch(path, content=CONTENT, headers=chunk | digest)
        assert (answer.status_code, answer.json().get("offset")) == (200, len(CONTENT)), answer.text
        assert await database_sync_to_async(received)() == CONTENT
        too_long = await http.patch(path, content=bytes(64 * 2**20 + 1), headers=chunk)
        assert (too_long.status_code, too_long.json()["type"]) == (413, "urn:joynexus:problem:body-too-large")
        assert (await http.get(path)).json()["offset"] == len(CONTENT)
