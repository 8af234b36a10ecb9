"""kill -9 of a worker while a receiver keeps it waiting: the event arrives again, under the same id."""

import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.utils import timezone

from tenants.webhooks import deliveries, tasks
from tenants.webhooks.models import DeliveryState
from tests.support.receivers import receiver, status
from tests.support.story import make_story
from tests.support.webhooks import make_delivery, reread

REPOSITORY = Path(__file__).resolve().parents[2]
# The task as a worker runs it, on the database of this test.
WORKER = """
import sys, django
django.setup()
from django.db import connections
connections["default"].settings_dict["NAME"] = sys.argv[1]
from tenants.webhooks import tasks
tasks.deliver(sys.argv[2], 0)
"""


def start_worker(delivery_id: object) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.support.settings",
        "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'platform'}",
        "JOYNEXUS_WEBHOOK_ALLOW": "127.0.0.1/32",
    }
    arguments = [sys.executable, "-c", WORKER, str(connection.settings_dict["NAME"]), str(delivery_id)]
    return subprocess.Popen(arguments, cwd=REPOSITORY, env=environment)


@pytest.mark.django_db(transaction=True)
def test_an_event_whose_worker_was_killed_arrives_under_the_same_id(settings: Any, monkeypatch: pytest.MonkeyPatch):
    settings.JOYNEXUS_WEBHOOK_ALLOW = (ip_network("127.0.0.1/32"),)
    alice, arrived = make_story().alice, threading.Event()
    nudged: list[tuple[str, int]] = []
    monkeypatch.setattr(deliveries, "nudge", lambda pk, *, tries: nudged.append((str(pk), tries)) or True)

    def wait(handler: BaseHTTPRequestHandler) -> None:
        arrived.set()
        time.sleep(4)

    with receiver() as there:
        there.answer = wait
        delivery = make_delivery(
            alice, url=f"http://127.0.0.1:{there.port}/", state=DeliveryState.WAITING, next_try_at=timezone.now()
        )
        worker = start_worker(delivery.pk)
        assert arrived.wait(60)
        worker.kill()
        worker.wait()
        assert tasks.sweep() == 0  # the claim of the dead still stands
        there.answer = lambda handler: status(handler, 204)
        with time_machine.travel(timezone.now() + deliveries.CLAIM_TTL + timedelta(seconds=1)):
            assert tasks.sweep() == 1
            tasks.deliver(*nudged[0])
    assert [request.headers["webhook-id"] for request in there.received] == [str(delivery.event_id)] * 2
    row = reread(delivery)
    assert (row.state, row.attempts) == (DeliveryState.DELIVERED, 2)
