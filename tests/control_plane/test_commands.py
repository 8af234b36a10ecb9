"""`manage.py bootstrap` and `manage.py import_dataset`."""

import json
import socket
from contextlib import closing
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from tenants.billing.models import PriceVersion
from tenants.billing.seeds import DEFAULT_PRICES
from tenants.datasets.models import DatasetVersion
from tenants.models import User
from tenants.scope import platform_scope
from tests.support.prices import complete_plan
from tests.support.story import Person, api_client

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> dict[str, str]:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return json.loads(out.getvalue())


def test_bootstrap_makes_a_tenant_whose_owner_and_key_work():
    answer = run("bootstrap", "--tenant", "Kitchen Lab", "--email", "Ana@Example.org")
    me = api_client(answer["api_key"]).get("/api/v1/me").json()
    assert me["tenant"] == {"id": answer["tenant_id"], "name": "Kitchen Lab", "role": "owner"}
    assert Client().login(email="ana@example.org", password=answer["password"])
    assert PriceVersion.objects.count() == len(DEFAULT_PRICES)


def test_bootstrap_takes_a_password_from_a_file_and_does_not_print_it(tmp_path: Path):
    (tmp_path / "password").write_text("a long password\n")
    arguments = ("--email", "ana@example.org", "--password-file", str(tmp_path / "password"))
    answer = run("bootstrap", "--tenant", "Kitchen Lab", *arguments)
    assert answer["password"] is None
    assert Client().login(email="ana@example.org", password="a long password")


def test_bootstrap_gives_a_known_person_a_second_tenant():
    run("bootstrap", "--tenant", "One", "--email", "ana@example.org")
    answer = run("bootstrap", "--tenant", "Two", "--email", "ana@example.org")
    assert answer["password"] is None
    assert api_client(answer["api_key"]).get("/api/v1/me").json()["email"] == "ana@example.org"


def test_bootstrap_refuses_a_taken_name_and_leaves_nothing():
    run("bootstrap", "--tenant", "One", "--email", "ana@example.org")
    with pytest.raises(CommandError, match="'One' is taken"):
        call_command("bootstrap", "--tenant", "One", "--email", "new@example.org")
    assert not Client().login(email="new@example.org", password="")


def test_bootstrap_makes_a_tenant_in_a_currency_that_has_a_complete_plan_and_in_no_other():
    complete_plan("dollars", currency="USD", since=timezone.now() - timedelta(days=1), amount="1")
    answer = run("bootstrap", "--tenant", "One", "--email", "ana@example.org", "--currency", "USD")
    assert api_client(answer["api_key"]).get("/api/v1/balance").json()["credit"]["currency"] == "USD"
    with pytest.raises(CommandError, match=r"No plan in 'JPY' .* there are plans in EUR, USD"):
        call_command("bootstrap", "--tenant", "Two", "--email", "ben@example.org", "--currency", "JPY")
    assert not User.objects.filter(email="ben@example.org").exists()


def test_an_operator_imports_a_folder_of_the_server(alice: Person, tmp_path: Path, dataset_root: Path):
    (tmp_path / "recording").mkdir()
    (tmp_path / "recording" / "readme.txt").write_text("hello")
    answer = run(
        "import_dataset", str(tmp_path / "recording"), "--tenant", alice.tenant.slug, "--name", "push-cube",
        "--declared", '{"robot_type": "panda"}',
    )  # fmt: skip
    assert answer["state"] == "received"
    with platform_scope():
        version = DatasetVersion.objects.get(pk=answer["version_id"])
    assert (version.number, version.size_bytes, version.declared) == (1, 5, {"robot_type": "panda"})
    assert (tmp_path / "recording" / "readme.txt").exists()


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        (("--tenant", "nobody", "--name", "x"), "'nobody' is unknown"),
        (("--name", "x", "--declared", '{"colour": 1}'), "colour"),
        (("--name", "x", "--declared", "{"), "Expecting"),
        (("--name", "x"), "neither a folder nor a zip"),
    ],
)
def test_a_wrong_import_names_what_is_wrong(alice: Person, extra: tuple[str, ...], named: str):
    arguments = ("/nowhere/at/all", "--tenant", alice.tenant.slug, *extra)
    with pytest.raises(CommandError, match=named):
        call_command("import_dataset", *arguments)


def test_a_port_that_is_taken_is_said_before_anything_starts():
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        with pytest.raises(CommandError, match=f"--port {port}: .*in use; choose another port"):
            call_command("up", "--port", str(port))
