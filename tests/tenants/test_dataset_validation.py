"""Validation: claimed once, read in a child process, sealed or refused; nothing is lost with a worker."""

import io
import uuid
import zipfile
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from gpu_runtime.protocol.schema import DatasetSummary, Defect, ValidationReport
from tenants.datasets import claims, services, storage, tasks, validation
from tenants.datasets.claims import version_claim, version_refuse, version_renew, version_seal
from tenants.datasets.models import DatasetVersion, VersionState
from tenants.datasets.services import dataset_import, sweep_unvalidated
from tenants.datasets.tasks import validate_dataset
from tenants.scope import platform_scope
from tests.support.factories import make_summary
from tests.support.jobs import make_spec
from tests.support.lerobot_v21 import DATA, edit_table, write_v21
from tests.support.story import Person

GOOD = ValidationReport(defects=(), summary=DatasetSummary.model_validate(make_summary()))
BAD = ValidationReport(
    defects=(
        Defect(severity="warning", code="constant_dimension", message="action dimension 6 never changes"),
        Defect(severity="error", code="fps_wrong", message="fps is 0", file="meta/info.json"),
    ),
    summary=None,
)


@pytest.fixture
def version(alice: Person, tmp_path: Path, dataset_root: Path, monkeypatch) -> DatasetVersion:
    """A received folder of two files."""
    monkeypatch.setattr(services, "nudge_validation", lambda version_id: None)
    source = tmp_path / "recording"
    (source / "meta").mkdir(parents=True)
    (source / "meta" / "info.json").write_text("{}")
    return dataset_import(tenant=alice.tenant, actor=alice.actor, name="push", source=source)


def says(monkeypatch, report: ValidationReport | None, reason: str = "") -> None:
    """The child process answers with this."""
    outcome = validation.Outcome(report=report, reason=reason)
    monkeypatch.setattr(validation, "validate", lambda *args, **kwargs: outcome)


def pack(folder: Path) -> bytes:
    """A zip of a folder, with the folder in it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for path in folder.rglob("*"):
            file.write(path, path.relative_to(folder.parent))
    return buffer.getvalue()


def reread(version: DatasetVersion) -> DatasetVersion:
    with platform_scope():
        return DatasetVersion.objects.get(pk=version.pk)


def expire(version: DatasetVersion, **fields: object) -> None:
    with platform_scope():
        DatasetVersion.objects.filter(pk=version.pk).update(
            claimed_until=timezone.now() - timedelta(seconds=1), **fields
        )


def test_a_good_dataset_is_sealed_and_appears_at_its_place(version: DatasetVersion, monkeypatch, dataset_root: Path):
    says(monkeypatch, GOOD)
    validate_dataset(str(version.pk))
    sealed = reread(version)
    assert (sealed.state, sealed.claimed_until) == (VersionState.READY, None)
    assert sealed.schema_signature == GOOD.summary.schema_.signature
    assert sealed.statistics_hash == GOOD.summary.statistics.hash
    assert sealed.fingerprint == GOOD.summary.fingerprint
    assert DatasetSummary.model_validate(sealed.summary) == GOOD.summary
    assert sealed.storage_key == f"{version.tenant_id}/{version.pk}"
    assert (dataset_root / sealed.storage_key / "meta" / "info.json").exists()
    assert list(storage.incoming().iterdir()) == []


def test_a_bad_dataset_is_refused_with_its_defects_and_its_bytes_are_given_back(version: DatasetVersion, monkeypatch):
    says(monkeypatch, BAD)
    validate_dataset(str(version.pk))
    refused = reread(version)
    assert (refused.state, refused.reason) == (VersionState.INVALID, "fps is 0 (file meta/info.json)")
    assert [defect["code"] for defect in refused.report["defects"]] == ["constant_dimension", "fps_wrong"]
    assert refused.summary is None
    assert list(storage.incoming().iterdir()) == []


def test_a_child_without_a_report_is_a_refusal_with_a_reason(version: DatasetVersion, monkeypatch):
    says(monkeypatch, None, "validation_timed_out: it took longer than 900 s")
    validate_dataset(str(version.pk))
    assert reread(version).reason == "validation_timed_out: it took longer than 900 s"


def test_a_second_delivery_of_the_message_does_nothing(version: DatasetVersion, monkeypatch):
    assert version_claim(version.pk) is not None
    monkeypatch.setattr(validation, "validate", lambda *args, **kwargs: pytest.fail("read twice"))
    validate_dataset(str(version.pk))
    assert reread(version).state == VersionState.VALIDATING


def test_a_settled_version_is_never_claimed_again(version: DatasetVersion, monkeypatch):
    says(monkeypatch, GOOD)
    validate_dataset(str(version.pk))
    assert version_claim(version.pk) is None


def test_long_validations_leave_workers_free_and_the_next_follows_at_once(
    version: DatasetVersion, alice: Person, tmp_path: Path, monkeypatch
):
    nudged: list[uuid.UUID] = []
    monkeypatch.setattr(services, "nudge_validation", nudged.append)
    other = dataset_import(tenant=alice.tenant, actor=None, name="next", source=tmp_path / "recording")

    def validate(*args: object, **kwargs: object) -> validation.Outcome:
        assert version_claim(other.pk) is None
        return validation.Outcome(report=GOOD)

    monkeypatch.setattr(validation, "validate", validate)
    validate_dataset(str(version.pk))
    assert reread(version).state == VersionState.READY
    assert nudged == [other.pk]
    assert version_claim(other.pk) is not None


def test_the_sweep_finds_what_a_lost_message_left_behind(version: DatasetVersion, monkeypatch):
    nudged: list[uuid.UUID] = []
    monkeypatch.setattr(services, "nudge_validation", nudged.append)
    assert sweep_unvalidated() == 0  # its first message is not late yet
    expire(version)
    assert [sweep_unvalidated(), sweep_unvalidated()] == [1, 0]
    version_claim(version.pk)
    assert sweep_unvalidated() == 0
    expire(version)
    assert sweep_unvalidated() == 1
    assert nudged == [version.pk, version.pk]


def test_a_worker_that_comes_back_late_changes_nothing(version: DatasetVersion, monkeypatch):
    late = version_claim(version.pk)
    expire(version)
    current = version_claim(version.pk)
    assert (late.attempts, current.attempts) == (1, 2)
    assert not version_seal(version=late, report=GOOD)
    assert not version_refuse(version=late, reason="late", report=None)
    assert not version_renew(late)
    assert reread(version).state == VersionState.VALIDATING
    assert storage.received_path(version.pk) is not None
    assert version_seal(version=current, report=GOOD)


def test_a_dataset_that_kills_its_workers_is_refused_after_three(version: DatasetVersion):
    expire(version, state=VersionState.VALIDATING, attempts=3)
    assert sweep_unvalidated() == 0
    refused = reread(version)
    assert refused.state == VersionState.INVALID
    assert "died 3 times" in refused.reason


def test_a_crash_between_the_move_and_the_seal_is_made_good(version: DatasetVersion, monkeypatch):
    storage.put_in_place(storage.received_path(version.pk), version.storage_key)
    seen: list[Path] = []

    def validate(path: Path, **kwargs: object) -> validation.Outcome:
        seen.append(path)
        return validation.Outcome(report=GOOD)

    monkeypatch.setattr(validation, "validate", validate)
    validate_dataset(str(version.pk))
    assert seen == [storage.stored_path(version.storage_key)]
    assert reread(version).state == VersionState.READY


def test_lost_bytes_are_said_so(version: DatasetVersion):
    storage.discard(version.pk)
    validate_dataset(str(version.pk))
    assert reread(version).reason.startswith("bytes_missing")


def test_a_dead_broker_is_left_to_the_sweep(caplog, monkeypatch):
    def refuse(version_id: str) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(tasks.validate_dataset, "delay", refuse)
    services.nudge_validation(uuid.uuid4())
    assert "waits for the sweep" in caplog.text


def test_the_task_may_run_longer_than_others(settings):
    assert tasks.validate_dataset.time_limit > validation.WALL_LIMIT_S > settings.CELERY_TASK_TIME_LIMIT
    assert claims.CLAIM_TTL.total_seconds() > 3 * validation.HEARTBEAT_S


def test_a_reading_whose_claim_was_lost_changes_nothing(version: DatasetVersion, monkeypatch, caplog):
    def lose(*args: object, **kwargs: object) -> validation.Outcome:
        raise validation.ClaimLost

    monkeypatch.setattr(validation, "validate", lose)
    validate_dataset(str(version.pk))
    assert reread(version).state == VersionState.VALIDATING
    assert "attempt 1 is superseded" in caplog.text


def test_the_bytes_of_a_version_deleted_while_it_was_read_go(version: DatasetVersion, monkeypatch, dataset_root: Path):
    def validate(*args: object, **kwargs: object) -> validation.Outcome:
        with platform_scope():
            DatasetVersion.objects.filter(pk=version.pk).delete()
        return validation.Outcome(report=GOOD)

    monkeypatch.setattr(validation, "validate", validate)
    validate_dataset(str(version.pk))
    assert [path for path in dataset_root.rglob("*") if path.is_file()] == []


def test_a_real_folder_that_is_no_dataset_is_refused_by_the_real_validator(version: DatasetVersion):
    validate_dataset(str(version.pk))
    refused = reread(version)
    assert refused.state == VersionState.INVALID
    assert refused.report["defects"]
    assert refused.report["defects"][0]["file"] == "meta/info.json"


def _spoil(columns: dict[str, list]) -> None:
    columns["action"][3][1] = float("nan")


def test_a_broken_zip_is_refused_with_the_file_episode_frame_and_feature(
    bob: Person, dataset_root: Path, tmp_path: Path
):
    write_v21(tmp_path / "recording")
    file = DATA.format(1)
    edit_table(tmp_path / "recording" / file, _spoil)
    answer = bob.api.post("/api/v1/datasets?name=broken", pack(tmp_path / "recording"), content_type="application/zip")
    validate_dataset(answer.json()["id"])
    told = bob.api.get(answer["Location"]).json()
    assert (told["state"], told["summary"]) == ("invalid", None)
    defect = next(row for row in told["report"]["defects"] if row["code"] == "not_finite")
    place = {name: defect[name] for name in ("file", "episode", "frame", "feature")}
    assert place == {"file": file, "episode": 1, "frame": 3, "feature": "action"}
    assert f"(file {file}, episode 1, frame 3, feature action)" in told["reason"]
    assert [path for path in dataset_root.rglob("*") if path.is_file()] == []
    spec = make_spec(dataset={"id": told["id"]})
    (refused,) = bob.api.post("/api/v1/jobs", spec).json()["errors"]
    assert (refused["pointer"], refused["code"]) == ("/dataset/id", "dataset_not_ready")
    assert "frame 3" in refused["detail"]


def test_a_real_dataset_uploaded_as_a_zip_becomes_ready(bob: Person, dataset_root: Path, tmp_path: Path):
    write_v21(tmp_path / "recording")
    answer = bob.api.post("/api/v1/datasets?name=real", pack(tmp_path / "recording"), content_type="application/zip")
    validate_dataset(answer.json()["id"])
    ready = bob.api.get(answer["Location"]).json()
    assert ready["state"] == "ready", ready["report"]
    assert ready["summary"]["episodes"] > 0
    assert (dataset_root / str(bob.tenant.pk) / ready["id"] / "meta" / "info.json").is_file()
