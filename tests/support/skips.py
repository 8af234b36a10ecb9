"""Skips are written down, and are failures where everything must be present (`JOYNEXUS_REQUIRE_ALL=1`)."""

import json
import os
from pathlib import Path

import pytest

MAY_BE_MISSING = ("gpu", "recording", "libero")  # what no set-up of ours can promise to bring
REQUIRE_ALL = os.environ.get("JOYNEXUS_REQUIRE_ALL") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Keep each skip's reason for the list at the end; refuse it if nothing may be missing."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if REQUIRE_ALL and not any(item.get_closest_marker(name) for name in MAY_BE_MISSING):
            report.outcome = "failed"
            report.longrepr = f"JOYNEXUS_REQUIRE_ALL=1 and this was skipped: {reason}"
        _write_down(item.nodeid, reason)
    return report


def _write_down(nodeid: str, reason: str) -> None:
    path = os.environ.get("JOYNEXUS_SKIPS")
    if path:
        with Path(path).open("a") as out:
            out.write(json.dumps({"test": nodeid, "reason": reason.removeprefix("Skipped: ")}) + "\n")
