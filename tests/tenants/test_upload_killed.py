"""kill -9 of the process that writes a chunk: the upload goes on at the last chunk that was acknowledged."""

import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
from django.db import connection

from tenants.datasets import resumable, services, storage
from tenants.datasets.selectors import upload_get
from tenants.quotas.storage import Stored, storage_of
from tests.support.story import Person

REPOSITORY = Path(__file__).resolve().parents[2]
CONTENT = os.urandom(3_000_000)
CHUNK = 1_500_000

# A server that is killed while the second half of a chunk is still to come.
SERVER = """
import sys, time, uuid, django
django.setup()
from django.conf import settings
from django.db import connections
from tenants.datasets import resumable
from tenants.models import Tenant

name, root, tenant_id, upload_id, offset = sys.argv[1:]
connections["default"].settings_dict["NAME"] = name
settings.JOYNEXUS_DATASET_ROOT = root

class Source:
    sent = 0

    def read(self, size):
        if self.sent >= 700_000:
            print("there", flush=True)
            time.sleep(60)
        self.sent += 100_000
        return b"!" * 100_000

tenant = Tenant.objects.get(pk=tenant_id)
resumable.upload_append(tenant=tenant, upload_id=uuid.UUID(upload_id), offset=int(offset), source=Source())
"""


def kill_in_mid_chunk(root: Path, person: Person, upload_id: object, offset: int) -> None:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.support.settings",
        "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'platform'}",
    }
    name = str(connection.settings_dict["NAME"])
    arguments = [name, str(root), str(person.tenant.pk), str(upload_id), str(offset)]
    command = [sys.executable, "-c", SERVER, *arguments]
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"there\n"
        server.kill()


def append(person: Person, upload_id: UUID, offset: int) -> int:
    source = io.BytesIO(CONTENT[offset : offset + CHUNK])
    upload = resumable.upload_append(tenant=person.tenant, upload_id=upload_id, offset=offset, source=source)
    return upload.received_bytes


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("acknowledged", [0, CHUNK])
def test_a_server_killed_in_mid_chunk_loses_only_what_it_never_acknowledged(
    alice: Person, dataset_root: Path, monkeypatch: pytest.MonkeyPatch, acknowledged: int
) -> None:
    monkeypatch.setattr(services, "nudge_validation", lambda version_id: None)
    upload = resumable.upload_start(
        tenant=alice.tenant,
        actor=alice.actor,
        name="push",
        size_bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )
    if acknowledged:
        append(alice, upload.pk, 0)
    kill_in_mid_chunk(dataset_root, alice, upload.pk, acknowledged)
    assert storage.chunks_path(upload.pk).stat().st_size == acknowledged + 700_000  # torn
    offset = upload_get(alice.tenant, upload.pk).received_bytes
    assert offset == acknowledged
    while offset < len(CONTENT):  # at once: the dead process holds no lock
        offset = append(alice, upload.pk, offset)
    resumable.upload_verify(tenant=alice.tenant, actor=alice.actor, upload_id=upload.pk)
    version = resumable.upload_complete(tenant=alice.tenant, actor=alice.actor, upload_id=upload.pk)
    assert storage.received_path(version.pk).read_bytes() == CONTENT
    assert not storage.chunks_path(upload.pk).exists()
    assert storage_of(alice.tenant) == Stored(used_bytes=len(CONTENT))
