"""What one does to a running runtime, by one contract: stops that keep, deletions, drains."""

import pytest

from gpu_runtime.protocol.messages import StopJob, WorkloadState
from jobs.runtime_client import RuntimeRefused
from tests.support.runtime_contract import Served, fresh_job

CAP = StopJob(keep=True, reason="budget_reached", message="The job may cost 5.")


@pytest.fixture
def job_id(request: pytest.FixtureRequest) -> str:
    return fresh_job(request)


def test_a_stop_may_say_why_and_that_the_work_is_to_be_kept(served: Served, job_id: str) -> None:
    assert served.client.cancel(job_id, 1, CAP) is None, "nobody knows it"
    served.client.submit(served.submit(job_id))
    stopping = {WorkloadState.CANCELLING, WorkloadState.CANCELLED, WorkloadState.FAILED}
    for _ in range(2):
        status = served.client.cancel(job_id, 1, CAP)
        assert status is not None
        assert status.state in stopping


def test_deleting_a_file_frees_its_bytes_and_doing_so_again_none(served: Served, job_id: str) -> None:
    served.publish(job_id, b"x" * 1000)
    assert served.client.artifact_delete(job_id) == 1000
    assert served.client.artifact_delete(job_id) == 0
    with pytest.raises(RuntimeRefused) as refused:
        served.client.artifact(job_id)
    assert refused.value.status == 404


def test_checkpoints_of_an_attempt_that_nobody_knows_are_gone_already(served: Served, job_id: str) -> None:
    assert served.client.checkpoints_delete(job_id, 1) == 0


def test_features_of_a_dataset_that_none_are_kept_of_are_gone_already(served: Served) -> None:
    assert served.client.features_delete("00000000-0000-4000-8000-000000000000") == 0


def test_a_drained_service_takes_nothing_new_and_says_why_until_it_is_given_out_again(
    served: Served, job_id: str
) -> None:
    def shown() -> tuple[str, str | None]:
        return next((one.state, one.reason) for one in served.client.status().services if one.service == "training")

    try:
        for reason in ("new driver", "still"):
            answer = served.client.service_drain("training", reason)
            assert answer.journal_id == served.client.status().journal_id
            assert shown() == ("draining", reason)
        status = served.client.submit(served.submit(job_id))
        assert status.state is WorkloadState.ACCEPTED
        with pytest.raises(RuntimeRefused) as live:
            served.client.checkpoints_delete(job_id, 1)
        assert (live.value.status, live.value.code) == (409, "attempt_live")
        bound = served.submit(job_id).dataset
        assert bound is not None
        with pytest.raises(RuntimeRefused) as used:
            served.client.features_delete(bound.version_id)
        assert (used.value.status, used.value.code) == (409, "dataset_in_use")
        served.client.cancel(job_id, 1)
    finally:
        for _ in range(2):
            served.client.service_undrain("training")
    assert shown()[0] != "draining"


def test_a_service_that_there_is_not_is_refused_by_name(served: Served) -> None:
    for ask in (lambda: served.client.service_drain("gpu", "x"), lambda: served.client.service_undrain("gpu")):
        with pytest.raises(RuntimeRefused) as refused:
            ask()
        assert (refused.value.status, refused.value.code) == (404, "unknown_service")
        assert "training, inference, environment" in refused.value.message
