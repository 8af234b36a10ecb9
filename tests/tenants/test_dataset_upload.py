"""Uploads are streamed, counted, hashed, and taken in as the next version of a dataset."""

import hashlib
import io
import json
import uuid
import zipfile
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tenants.datasets import services, uploads
from tenants.datasets.models import DatasetVersion
from tenants.scope import platform_scope
from tests.support.story import Person, Story


@pytest.fixture(autouse=True)
def nudged(monkeypatch, dataset_root) -> list[uuid.UUID]:
    """Versions whose validation was asked for; no worker runs here."""
    asked: list[uuid.UUID] = []
    monkeypatch.setattr(services, "nudge_validation", asked.append)
    return asked


def archive(text: str = "hello") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("meta/info.json", text)
    return buffer.getvalue()


def upload(person: Person, body: bytes, query: str = "?name=push-cube", **headers: str):
    return person.api.post(
        f"/api/v1/datasets{query}",
        body,
        content_type="application/zip",
        headers={k.replace("_", "-"): v for k, v in headers.items()},
    )


def incoming(root: Path) -> list[str]:
    folder = root / ".incoming"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_zip_becomes_version_one_and_its_validation_is_asked_for(
    bob: Person, dataset_root: Path, nudged, django_capture_on_commit_callbacks
):
    body = archive()
    with django_capture_on_commit_callbacks(execute=True):
        answer = upload(bob, body)
    assert answer.status_code == 202, answer.json()
    version = answer.json()
    assert (version["name"], version["number"], version["state"]) == ("push-cube", 1, "received")
    assert version["size_bytes"] == len(body)
    assert answer["Location"] == f"/api/v1/dataset-versions/{version['id']}"
    assert bob.api.get(answer["Location"]).json() == version
    assert incoming(dataset_root) == [f"{version['id']}.zip"]
    assert nudged == [uuid.UUID(version["id"])]


def test_the_same_name_again_is_the_next_version(bob: Person):
    upload(bob, archive())
    upload(bob, archive("other"))
    (dataset,) = bob.api.get("/api/v1/datasets").json()["results"]
    assert (dataset["name"], [row["number"] for row in dataset["versions"]]) == ("push-cube", [2, 1])
    by_number = bob.api.get(f"/api/v1/datasets/{dataset['id']}/versions/1").json()
    assert by_number["id"] == dataset["versions"][1]["id"]


def test_the_same_name_in_two_tenants_is_two_datasets(story: Story):
    assert upload(story.alice, archive()).json()["number"] == 1
    assert upload(story.charlie, archive()).json()["number"] == 1


def test_a_form_upload_works_too_with_a_declaration(bob: Person):
    declared = {"robot_type": "panda", "rotations": {"front": 180}}
    form = {
        "file": SimpleUploadedFile("../../etc/passwd", archive()),
        "name": "push-cube",
        "declared": json.dumps(declared),
    }
    answer = bob.api.post("/api/v1/datasets", form, format="multipart")
    assert answer.status_code == 202, answer.json()
    assert answer.json()["declared"] == declared


def test_a_logged_in_browser_uploads_with_its_csrf_token(bob: Person, dataset_root: Path):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(bob.user)
    form = {"file": SimpleUploadedFile("a.zip", archive()), "name": "push-cube"}
    headers = {"Idempotency-Key": "k"}
    assert browser.post("/api/v1/datasets", form, headers=headers).status_code == 403
    assert incoming(dataset_root) == []
    browser.cookies["csrftoken"] = token = "t" * 32
    form["file"] = SimpleUploadedFile("a.zip", archive())
    answer = browser.post("/api/v1/datasets", form | {"name": "push-cube"}, headers=headers | {"X-CSRFToken": token})
    assert answer.status_code == 202, answer.json()


def test_an_upload_over_the_limit_is_cut_off_and_leaves_nothing(bob: Person, settings, dataset_root: Path):
    settings.JOYNEXUS_UPLOAD_MAX_BYTES = 2**20
    answer = upload(bob, b"x" * (2**20 + 1))
    assert (answer.status_code, answer.json()["limit"]) == (413, 2**20)
    form = {"file": SimpleUploadedFile("a.zip", b"x" * (2**20 + 1)), "name": "push-cube"}
    assert bob.api.post("/api/v1/datasets", form, format="multipart").status_code == 413
    assert incoming(dataset_root) == []
    with platform_scope():
        assert not DatasetVersion.objects.exists()


@pytest.mark.parametrize("size", [10, 3 * 2**20])  # found when the file is closed, or while it is written
@pytest.mark.parametrize("form", [False, True])
def test_a_full_disk_is_a_refusal_that_keeps_nothing(
    bob: Person, monkeypatch, dataset_root: Path, size: int, form: bool
):
    monkeypatch.setattr(uploads, "_create", lambda path: io.BufferedWriter(io.FileIO("/dev/full", "wb")))
    if form:
        body = {"name": "push", "file": SimpleUploadedFile("a.zip", b"z" * size)}
        answer = bob.api.post("/api/v1/datasets", body, format="multipart")
    else:
        answer = upload(bob, b"z" * size)
    assert (answer.status_code, answer.json()["type"]) == (507, "urn:joynexus:problem:storage-full")
    with platform_scope():
        assert not DatasetVersion.objects.exists()
    assert [path for path in dataset_root.rglob("*") if path.is_file()] == []


def test_an_announced_length_over_the_limit_is_refused_unread(bob: Person, settings):
    settings.JOYNEXUS_UPLOAD_MAX_BYTES = 10
    assert upload(bob, b"x" * (2**20 + 11)).status_code == 413


def test_a_digest_is_checked_when_given(bob: Person, dataset_root: Path):
    body = archive()
    wrong = upload(bob, body, X_Content_SHA256="0" * 64)
    assert (wrong.status_code, wrong.json()["type"]) == (422, "urn:joynexus:problem:digest-mismatch")
    assert hashlib.sha256(body).hexdigest() in wrong.json()["detail"]
    assert incoming(dataset_root) == []
    assert upload(bob, body, X_Content_SHA256=hashlib.sha256(body).hexdigest().upper()).status_code == 202


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("", "/name"),
        ("?name=", "/name"),
        ("?name=a&colour=red", "/colour"),
        ("?name=a&declared={", "/declared"),
        ("?name=a&declared=" + "[" * 3000, "/declared"),
        ("?name=a&name=b", "?name"),
        ('?name=a&declared={"rotations":{"front":45}}', "/declared/rotations/front"),
        ('?name=a&declared={"robot":"panda"}', "/declared/robot"),
    ],
)
def test_wrong_fields_are_named_and_leave_nothing(bob: Person, query: str, pointer: str, dataset_root: Path):
    answer = upload(bob, archive(), query)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert incoming(dataset_root) == []


def test_a_form_without_the_file_or_with_two_is_refused(bob: Person, dataset_root: Path):
    assert bob.api.post("/api/v1/datasets", {"name": "a"}, format="multipart").status_code == 422
    two = {"name": "a", "file": SimpleUploadedFile("a", b"1"), "more": SimpleUploadedFile("b", b"2")}
    assert bob.api.post("/api/v1/datasets", two, format="multipart").status_code == 422
    assert incoming(dataset_root) == []


def test_a_repeated_upload_is_taken_once(bob: Person, dataset_root: Path):
    first = upload(bob, archive(), Idempotency_Key="k")
    again = upload(bob, archive(), Idempotency_Key="k")
    assert again.json() == first.json()
    assert (again["Idempotent-Replayed"], again["Location"]) == ("true", first["Location"])
    assert len(incoming(dataset_root)) == 1
    assert upload(bob, archive("other"), Idempotency_Key="k").status_code == 422
    assert len(incoming(dataset_root)) == 1


def test_an_upload_without_a_key_is_refused_unread(bob: Person, dataset_root: Path):
    assert upload(bob, archive(), Idempotency_Key="").status_code == 400
    assert incoming(dataset_root) == []
