"""A year of billing for a thousand tenants on PostgreSQL: every invoice closed, every difference 0, rows per second.

Usage comes late, twice and out of order; prices change every month; tenants pay ahead, are given credit, run into hard
budgets, pay and are credited. Each figure is worked out a second time by an oracle. A row is one line of an event.
Run ``python -m tests.benchmarks.bench_year``; ``--database sqlite`` for the embedded one.
"""

import argparse
import json
import os
import subprocess
import sys
import time

from tests.benchmarks.bench_billing import DATABASES, prepare

SEED = 2026


def main() -> int:
    arguments = _arguments()
    if arguments.here:
        prepare()
        _play(arguments)
        return 0
    command = [sys.executable, "-m", "tests.benchmarks.bench_year", "--here", *sys.argv[1:]]
    if arguments.database == "postgresql":
        command = [sys.executable, "-m", "tests.support.postgres", "--", *command]
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    return subprocess.run(command, env=environment, check=False).returncode


def _play(arguments: argparse.Namespace) -> None:
    from tests.support.billing_year import play

    began = time.perf_counter()
    year = play(seed=SEED, tenants=arguments.tenants, works_per_week=arguments.works, months=arguments.months)
    figures = {
        "database": arguments.database,
        "tenants": arguments.tenants,
        "months": arguments.months,
        "rows": year.rows,
        "repeated_events": year.repeats,
        "late_rows": year.late,
        "price_changes": year.prices,
        "invoices": year.invoices,
        "budgets_used_up": len(year.stopped),
        "largest_overshoot": f"{year.overshoot:f}",
        "differences": year.differences,
        "rows_per_s": round(year.rows / year.ingest_s),
        "ingest_s": round(year.ingest_s, 1),
        "wall_s": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(figures) if arguments.json else _text(figures), flush=True)


def _text(figures: dict[str, object]) -> str:
    return "\n".join(f"{name:>18}  {value}" for name, value in figures.items())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--database", choices=DATABASES, default="postgresql")
    parser.add_argument("--tenants", type=int, default=1_000)
    parser.add_argument("--months", type=int, default=12)
    parser.add_argument("--works", type=int, default=2_500, help="events per week, of all tenants together")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # play in this very process
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
