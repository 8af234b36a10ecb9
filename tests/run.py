"""`make test`: every suite one after the other, then what was skipped and why.

Suites that touch the database run on SQLite and again on a real PostgreSQL. The browser suite runs in its own
process: its event loop would poison asynchronous tests. Give a suite's name to run that one only.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

DATABASE_SUITES = ("tests/control_plane", "tests/tenants", "tests/jobs", "tests/isolation", "tests/frontend")
PYTEST = (sys.executable, "-m", "pytest", "-q", "--durations=5", "--timeout=300")
BROWSER_PLUGINS = ("-p", "playwright")

SUITES: dict[str, tuple[str, ...]] = {
    "core": (*PYTEST, "-n", "2", "tests", "--ignore=tests/stack", "--ignore=tests/browser"),
    "postgresql": (
        *(sys.executable, "-m", "tests.support.postgres", "--"),
        *(*PYTEST, "-n", "2", *(suite for suite in DATABASE_SUITES if Path(suite).exists())),
    ),
    "stack": (*PYTEST, "tests/stack"),
    "browser": (*PYTEST, "tests/browser"),
}


def main(wanted: list[str]) -> int:
    unknown = sorted(set(wanted) - set(SUITES))
    if unknown:
        print(f"unknown suite {unknown[0]!r}; there are: {', '.join(SUITES)}")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        skips = Path(folder) / "skips"
        environment = {**os.environ, "JOYNEXUS_SKIPS": str(skips), "OMP_NUM_THREADS": "1"}
        failed = [name for name in wanted or SUITES if not _run(name, environment)]
        _report_skips(skips)
    print(f"failed: {', '.join(failed)}" if failed else "every suite passed")
    return 1 if failed else 0


def _run(name: str, environment: dict[str, str]) -> bool:
    print(f"\n=== {name} ===", flush=True)
    started_s = time.monotonic()
    status = subprocess.run(SUITES[name], env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    print(f"=== {name}: {'passed' if status == 0 else 'FAILED'} in {time.monotonic() - started_s:.0f} s", flush=True)
    return status == 0


def _report_skips(path: Path) -> None:
    reasons: defaultdict[str, int] = defaultdict(int)
    for line in path.read_text().splitlines() if path.exists() else []:
        reasons[json.loads(line)["reason"]] += 1
    print("\nSkipped: " + ("nothing" if not reasons else ""))
    for reason, count in sorted(reasons.items()):
        print(f"  {count} x {reason}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
