"""Is the process alive (`/healthz`), and can it serve (`/readyz`)? Strangers learn yes or no, operators learn why."""

import logging
from collections.abc import Callable

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse

from control_plane.celery import app

logger = logging.getLogger(__name__)
_BROKER_TIMEOUT_S = 1


def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as the process answers."""
    return HttpResponse("OK\n", content_type="text/plain")


def readyz(request: HttpRequest) -> HttpResponse:
    """200 if database, schema and broker are in order, else 503."""
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


CHECKS: dict[str, Callable[[], None]] = {
    "database": check_database,
    "migrations": check_migrations,
    "broker": check_broker,
}


def _fault(name: str, check: Callable[[], None]) -> str:
    try:
        check()
    except Exception as error:
        logger.warning("not ready: %s: %s", name, error)
        return f"{type(error).__name__}: {error}"
    return ""
