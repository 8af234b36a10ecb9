"""Is the process alive (`/healthz`), and can it serve (`/readyz`)? Strangers learn yes or no, operators learn why."""

import logging
from collections.abc import Callable
from datetime import timedelta

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from control_plane.celery import app
from jobs.models import RuntimeSnapshot

logger = logging.getLogger(__name__)
_BROKER_TIMEOUT_S = 1
RUNTIME_UNSEEN_MAX = timedelta(seconds=60)  # a restart takes less


def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as the process answers."""
    return HttpResponse("OK\n", content_type="text/plain")


def readyz(request: HttpRequest) -> HttpResponse:
    """200 if database, schema, broker and runtime are in order, else 503."""
    faults = {name: fault for name, check in CHECKS.items() if (fault := _fault(name, check))}
    text = "NOT READY\n" if faults else "OK\n"
    if request.user.is_authenticated and request.user.is_staff:
        text += "".join(f"{name}: {fault}\n" for name, fault in faults.items())
    return HttpResponse(text, status=503 if faults else 200, content_type="text/plain")


def check_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def check_migrations() -> None:
    executor = MigrationExecutor(connection)
    pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if pending:
        raise RuntimeError(f"{len(pending)} migrations are not applied")


def check_broker() -> None:
    with app.connection_for_read(connect_timeout=_BROKER_TIMEOUT_S) as broker:
        broker.ensure_connection(max_retries=1, interval_start=0, timeout=_BROKER_TIMEOUT_S)


def check_runtime() -> None:
    """The relay writes down every few seconds that it has seen the runtime."""
    snapshot = RuntimeSnapshot.objects.order_by("-seen_at").values_list("seen_at", flat=True).first()
    if snapshot is None:
        raise RuntimeError("the runtime was never seen")
    age = timezone.now() - snapshot
    if age > RUNTIME_UNSEEN_MAX:
        raise RuntimeError(f"the runtime was last seen {age.total_seconds():.0f} s ago")


CHECKS: dict[str, Callable[[], None]] = {
    "database": check_database,
    "migrations": check_migrations,
    "broker": check_broker,
    "runtime": check_runtime,
}


def _fault(name: str, check: Callable[[], None]) -> str:
    try:
        check()
    except Exception as error:
        logger.warning("not ready: %s: %s", name, error)
        return f"{type(error).__name__}: {error}"
    return ""
