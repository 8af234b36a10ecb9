"""Where letters go, by the environment."""

import pytest

from control_plane.conf.mail import mail_settings


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOYNEXUS_SMTP_URL", raising=False)
    monkeypatch.delenv("JOYNEXUS_MAIL_FROM", raising=False)


def test_without_a_server_letters_are_files_of_the_state_folder():
    told = mail_settings()
    assert told["EMAIL_BACKEND"].endswith("filebased.EmailBackend")
    assert told["EMAIL_FILE_PATH"].endswith("/mail")


@pytest.mark.parametrize(
    ("url", "port", "tls", "ssl"),
    [
        ("smtp://mail.example.org", 25, False, False),
        ("smtp+tls://joy:p%40ss@mail.example.org", 587, True, False),
        ("smtps://joy:p%40ss@mail.example.org:2465", 2465, False, True),
    ],
)
def test_a_server_is_named_by_one_address(monkeypatch: pytest.MonkeyPatch, url: str, port: int, tls: bool, ssl: bool):
    monkeypatch.setenv("JOYNEXUS_SMTP_URL", url)
    monkeypatch.setenv("JOYNEXUS_MAIL_FROM", "lab@example.org")
    told = mail_settings()
    assert (told["EMAIL_HOST"], told["EMAIL_PORT"]) == ("mail.example.org", port)
    assert (told["EMAIL_USE_TLS"], told["EMAIL_USE_SSL"]) == (tls, ssl)
    assert told["EMAIL_HOST_PASSWORD"] == ("p@ss" if "@mail" in url else "")
    assert told["DEFAULT_FROM_EMAIL"] == "lab@example.org"


@pytest.mark.parametrize("url", ["http://mail.example.org", "smtp://", "mail.example.org"])
def test_an_address_that_cannot_be_meant_is_refused(monkeypatch: pytest.MonkeyPatch, url: str):
    monkeypatch.setenv("JOYNEXUS_SMTP_URL", url)
    with pytest.raises(RuntimeError, match="JOYNEXUS_SMTP_URL"):
        mail_settings()
