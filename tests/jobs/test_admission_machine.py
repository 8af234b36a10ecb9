"""Any order of submits, dispatches, ends, limits and pauses: never too many, in line, and every hold where it belongs.

The planted defects show that the machine would notice.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from jobs.selectors import line
from jobs.services import dispatch, places, transition
from jobs.services.admission import entry, spending
from tests.support.admission_machine import Admission


def run(examples: int, steps: int, *, phases: tuple[Phase, ...] = (Phase.generate,)) -> None:
    run_state_machine_as_test(
        Admission,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=True, phases=phases,
            suppress_health_check=list(HealthCheck), print_blob=False, report_multiple_bugs=False,
        ),
    )  # fmt: skip


@pytest.mark.django_db
def test_whatever_happens_limits_order_money_and_holds_are_kept():
    run(12, 30)


def _stale_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is started is counted once and remembered: read before the lock."""
    known: dict[Any, Any] = {}
    count = places.started_use
    monkeypatch.setattr(places, "started_use", lambda tenant: known.setdefault(tenant.pk, count(tenant)))


def _no_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "ORDER", ("created_at", "pk"))


def _overtaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits keeps nothing for itself."""
    place = places._place

    def careless(tenant: Any, project: Any, wanted: Any, **more: Any) -> Any:
        kept = dict(tenant.free), dict(project.free)
        wait = place(tenant, project, wanted, **more)
        if wait is not None:
            tenant.free, project.free = kept
        return wait

    monkeypatch.setattr(places, "_place", careless)


def _hold_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transition, "hold_release", lambda *, job_id: None)


def _reserved_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spending, "reserved", lambda tenant, project=None: Decimal(0))


def _line_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "queued_counts", lambda tenant: {})


def _pause_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PAUSED", "not_told")


def _claims_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "wait_of", lambda tenant, job_id: None)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "plant",
    [
        _stale_counts, _no_priority, _overtaking, _hold_kept, _reserved_forgotten, _line_not_counted, _pause_ignored,
        _claims_without_asking,
    ],
)  # fmt: skip
def test_a_planted_defect_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run(40, 30)
