"""Whose turn it is: priority, then age; nobody takes what an earlier one waits for; a project holds up only itself."""

import uuid
from datetime import UTC, datetime

from jobs.selectors.line import InLine, demand
from jobs.services.places import turns
from tenants.quotas.limits import Limits
from tenants.quotas.models import Quota, Resource

RUNNING, SLOTS, SEATS = Resource.RUNNING_JOBS, Resource.SLOTS, Resource.ENV_SEATS
PUSH, PICK = uuid.uuid4(), uuid.uuid4()


def job(kind: str = "sft", seats: int = 0, project: uuid.UUID = PUSH, reason: str = "") -> InLine:
    return InLine(uuid.uuid4(), project, kind, seats, 5, reason, datetime(2026, 1, 1, tzinfo=UTC))


def limits(projects: dict[uuid.UUID, dict[Resource, int]] | None = None, **tenant: int) -> Limits:
    own = {(key, one): Quota(limit=limit) for key, row in (projects or {}).items() for one, limit in row.items()}
    return Limits(own=own, defaults={Resource(name): limit for name, limit in tenant.items()})


def waits(line: list[InLine], allowed: Limits, started: list[InLine] = ()) -> list[str]:
    """What each in line waits for; "" for one that may start."""
    used: dict[uuid.UUID, dict[Resource, int]] = {}
    for one in started:
        own = used.setdefault(one.project_id, dict.fromkeys((RUNNING, SLOTS, SEATS), 0))
        for resource, amount in demand(one.kind, one.env_seats).items():
            own[resource] += amount
    return [turn.wait.reason if turn.wait else "" for turn in turns(limits=allowed, started=used, line=line)]


def test_without_limits_everybody_starts():
    assert waits([job(), job("rl", 256)], limits()) == ["", ""]


def test_those_who_are_first_start_and_the_others_wait_for_running_jobs():
    assert waits([job(), job(), job()], limits(running_jobs=2)) == ["", "", "quota_running_jobs"]
    assert waits([job()], limits(running_jobs=2), [job(), job()]) == ["quota_running_jobs"]


def test_slots_count_jobs_that_train_and_seats_count_environments():
    line = [job("sft"), job("rl", 4), job("evaluation", 4), job("rollout", 1)]
    assert waits(line, limits(slots=1)) == ["", "quota_slots", "", ""]
    assert waits(line, limits(env_seats=4)) == ["", "", "quota_env_seats", "quota_env_seats"]


def test_a_small_job_does_not_take_the_seats_a_large_one_waits_for():
    large, small = job("rl", 8), job("evaluation", 1)
    assert waits([large, small], limits(env_seats=8), [job("evaluation", 4)]) == ["quota_env_seats"] * 2


def test_a_job_that_waits_for_seats_keeps_its_slot_and_its_running_place_too():
    """Else one that needs both could lose each to the others in turn and wait for ever."""
    waiting, busy = job("rl", 8), [job("evaluation", 8)]
    assert waits([waiting, job("sft")], limits(env_seats=8, slots=1), busy) == ["quota_env_seats", "quota_slots"]
    assert waits([waiting, job("sft")], limits(env_seats=8, running_jobs=2), busy)[1] == "quota_running_jobs"
    assert waits([waiting, job("sft")], limits(env_seats=8, slots=2), busy) == ["quota_env_seats", ""]


def test_a_project_at_its_limit_holds_up_itself_only():
    allowed = limits({PUSH: {RUNNING: 1}}, running_jobs=3)
    line = [job(), job(), job(), job(project=PICK), job(project=PICK), job(project=PICK)]
    wait = "quota_running_jobs"
    assert waits(line, allowed) == ["", wait, wait, "", "", wait]


def test_within_a_project_nobody_overtakes_for_what_an_earlier_one_waits_for():
    line, busy = [job("evaluation", 8), job("evaluation", 1), job("sft")], [job("rollout", 2)]
    seats = "quota_env_seats"
    assert waits(line, limits({PUSH: {SEATS: 8, RUNNING: 3}}), busy) == [seats, seats, "quota_running_jobs"]
    assert waits(line, limits({PUSH: {SEATS: 8, RUNNING: 4}}), busy) == [seats, seats, ""]


def test_a_job_that_a_lowered_limit_makes_impossible_holds_up_nobody():
    line = [job("rl", 8), job("evaluation", 4)]
    assert waits(line, limits(env_seats=4)) == ["quota_env_seats", ""]
    told = next(iter(turns(limits=limits(env_seats=4), started={}, line=line))).wait
    assert told is not None
    assert "4" in told.message
    assert "8" in told.message
    assert "raised" in told.message


def test_a_job_that_waits_for_money_or_a_drained_service_has_its_turn_and_holds_up_nobody():
    for reason in ("month_limit_reached", "budget_reached", "service_draining"):
        assert waits([job(reason=reason), job()], limits(running_jobs=1)) == ["", ""]
        assert waits([job(reason=reason), job()], limits({PUSH: {SLOTS: 1}})) == ["", ""]
    assert waits([job(reason="quota_slots"), job()], limits(running_jobs=1)) == ["", "quota_running_jobs"]


def test_a_limit_below_what_runs_admits_nobody_and_breaks_nothing():
    assert waits([job()], limits(running_jobs=1), [job(), job(), job()]) == ["quota_running_jobs"]
