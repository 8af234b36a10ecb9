"""How fast usage becomes money: batches of many tenants through `usage_ingest_batch`, on SQLite and PostgreSQL.

The whole path is measured: months locked, duplicates looked up, rated by three plans with factors and running totals,
events, ratings, running sums and the ledger written, one transaction per batch. A row is one line of an event.
Run ``python -m tests.benchmarks.bench_billing``; ``--json`` prints one line per database.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median, quantiles
from typing import Any

DATABASES = ("sqlite", "postgresql")
AIM_ROWS_PER_S = 2_000  # on PostgreSQL, two cores
SEED = 20_260
START = datetime(2026, 1, 1, tzinfo=UTC)
PAUSE = timedelta(minutes=1)  # between batches, in the world's time


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One database. Times are of the ingest alone: making the events up is not counted."""

    database: str
    tenants: int
    batches: int
    events: int
    rows: int
    rows_per_s: float
    events_per_s: float
    batch_p50_ms: float
    batch_p95_ms: float
    cpu_ms: float  # of a batch: what this process and its PostgreSQL backend worked; the rest is waiting for others
    rows_per_cpu_s: float  # what a machine with nothing else to do would come to, waits for the disk aside
    load: float  # of the machine, one minute, at the end


def main() -> int:
    arguments = _arguments()
    if arguments.here:
        print(json.dumps(asdict(measure(arguments.here, arguments.tenants, arguments.batches, arguments.size))))
        return 0
    results = [_in_child(database, sys.argv[1:]) for database in DATABASES if database in arguments.databases]
    for result in results:
        print(json.dumps(result) if arguments.json else _line(Measured(**result)))
    return 0


def measure(database: str, tenants: int, batches: int, size: int) -> Measured:
    """Ingest into the configured database, which is migrated and empty. The first batch is a warm-up."""
    from tenants.billing.usage.batches import usage_ingest_batch
    from tenants.scope import platform_scope
    from tests.support.billing_world import world_make

    world = world_make(seed=SEED, tenants=tenants, start=START)
    seconds, cpu_s = [], 0.0
    backend = _backend_pid()
    with platform_scope():
        for number in range(batches + 1):
            works = world.works(size, at=START + number * PAUSE, spread=PAUSE)
            cpu, begun = _cpu_s(backend), time.perf_counter()
            ingested = usage_ingest_batch(works, source="bench")
            if number:
                seconds.append(time.perf_counter() - begun)
                cpu_s += _cpu_s(backend) - cpu
            if ingested.refused:
                raise RuntimeError(f"refused: {ingested.refused[:3]}")
    check_books((batches + 1) * size)
    events = batches * size
    return Measured(
        database=database,
        tenants=tenants,
        batches=batches,
        events=events,
        rows=2 * events,
        rows_per_s=round(2 * events / sum(seconds), 1),
        events_per_s=round(events / sum(seconds), 1),
        batch_p50_ms=round(median(seconds) * 1000, 1),
        batch_p95_ms=round(quantiles(seconds, n=20)[-1] * 1000, 1),
        cpu_ms=round(cpu_s / batches * 1000, 1),
        rows_per_cpu_s=round(2 * events / cpu_s, 1),
        load=round(os.getloadavg()[0], 2),
    )


def check_books(events: int) -> None:
    """What was measured is right too: every event is rated, and sums, ratings and the ledger's revenue are equal."""
    from django.db.models import Sum

    from tenants.billing.models import Account, LedgerEntry, RatedUsage, UsageEvent, UsageRollup
    from tenants.scope import platform_scope

    with platform_scope():
        counts = UsageEvent.objects.count(), RatedUsage.objects.count()
        earned = LedgerEntry.objects.filter(account=Account.REVENUE).aggregate(n=Sum("amount"))["n"]
        sums = [model.objects.aggregate(n=Sum("amount"))["n"] for model in (RatedUsage, UsageRollup)]
    if counts != (2 * events, 2 * events) or sums != [earned, earned]:
        raise RuntimeError(f"the books disagree: {counts=}, {sums=}, {earned=}")


def _backend_pid() -> int | None:
    """The process of the server that works for this connection; None for SQLite, which works in this one."""
    from django.db import connection

    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def _cpu_s(backend: int | None) -> float:
    """Processor time of this process, and of its backend as Linux counts it."""
    if backend is None:
        return time.process_time()
    fields = Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _in_child(database: str, options: Sequence[str]) -> dict[str, Any]:
    """One run in a process of its own, with a database of its own that is gone afterwards."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_billing", "--here", database, *options]
    if database == "postgresql":
        command = [sys.executable, "-m", "tests.support.postgres", "--", *command]
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    found = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return result


def _line(found: Measured) -> str:
    aim = f" (aim {AIM_ROWS_PER_S:,})" if found.database == "postgresql" else ""
    return (
        f"{found.database}: {found.rows_per_s:,.0f} rows/s{aim}, {found.events_per_s:,.0f} events/s, "
        f"a batch p50 {found.batch_p50_ms:.0f} ms, p95 {found.batch_p95_ms:.0f} ms; {found.rows:,} rows of "
        f"{found.tenants:,} tenants in {found.batches} batches; {found.rows_per_cpu_s:,.0f} rows per CPU second, "
        f"load {found.load:.1f}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=list(DATABASES))
    parser.add_argument("--tenants", type=int, default=1_000)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--size", type=int, default=500, help="events per batch")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", choices=DATABASES, help=argparse.SUPPRESS)  # measure in this very process
    return parser.parse_args()


def prepare() -> None:
    """Django on the tests' settings, which honour DATABASE_URL, with an empty database."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.support.settings")
    sys.path.insert(0, "platform")
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, skip_checks=True)


if __name__ == "__main__":
    if "--here" in sys.argv:
        prepare()
    sys.exit(main())
