"""Sending for real: TLS, certificates, rebinding names, redirects, slow and endless answers."""

import ipaddress
import socket
import time
from collections.abc import Callable

import pytest

from tenants.webhooks import sender
from tenants.webhooks.sender import READ_MAX_BYTES, send
from tests.support.receivers import certificate, raw_server, receiver, status

NAME = "hooks.example.org"
Resolve = Callable[..., None]


@pytest.fixture(autouse=True)
def opened(settings):
    """This machine's own network, and only it, is open to webhooks."""
    settings.JOYNEXUS_WEBHOOK_ALLOW = (ipaddress.ip_network("127.0.0.1/32"),)


@pytest.fixture
def names(monkeypatch) -> Callable[..., list[str]]:
    """Let the resolver give one list of addresses per question; what was asked is noted."""
    asked: list[str] = []

    def install(*answers: list[str]) -> list[str]:
        waiting = list(answers)

        def getaddrinfo(host, port, *args, **kwargs):
            if host != NAME:
                return original(host, port, *args, **kwargs)
            asked.append(host)
            found = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port)) for text in found]

        original = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        return asked

    return install


def post(url: str):
    return send(url, headers={"webhook-id": "1"}, body=b"{}")


def test_a_post_arrives_with_its_body_headers_and_host():
    with receiver() as there:
        answer = post(f"http://127.0.0.1:{there.port}/a?b=c")
    assert (answer.status, answer.error) == (204, "")
    (request,) = there.received
    assert (request.path, request.body, request.headers["webhook-id"]) == ("/a?b=c", b"{}", "1")
    assert request.headers["host"] == f"127.0.0.1:{there.port}"


def test_over_tls_the_certificate_and_the_host_are_the_names(names, settings, tmp_path):
    context, settings.JOYNEXUS_WEBHOOK_CA_FILE = certificate(tmp_path, NAME)
    names(["127.0.0.1"])
    with receiver(tls=context) as there:
        answer = post(f"https://{NAME}:{there.port}/hook")
    assert answer.ok, answer
    assert there.received[0].headers["host"] == f"{NAME}:{there.port}"


def test_a_certificate_of_another_name_is_refused(names, settings, tmp_path):
    context, settings.JOYNEXUS_WEBHOOK_CA_FILE = certificate(tmp_path, "other.example.org")
    names(["127.0.0.1"])
    with receiver(tls=context) as there:
        answer = post(f"https://{NAME}:{there.port}/hook")
    assert (answer.status, answer.error) == (None, "the certificate is not valid for this name")
    assert there.received == []


def test_a_certificate_nobody_vouches_for_is_refused(names, tmp_path):
    context, _ = certificate(tmp_path, NAME)
    names(["127.0.0.1"])
    with receiver(tls=context) as there:
        assert post(f"https://{NAME}:{there.port}/").error == "the certificate is not valid for this name"
    assert there.received == []


def test_a_name_is_asked_for_once_and_the_connection_goes_to_that_address(names):
    """Rebinding: the second question would lead to a server that is not allowed."""
    with receiver() as allowed, receiver("127.0.0.2", allowed.port) as forbidden:
        asked = names(["127.0.0.1"], ["127.0.0.2"])
        assert post(f"http://{NAME}:{allowed.port}/").ok
        assert asked == [NAME]
        assert len(allowed.received) == 1
        assert post(f"http://{NAME}:{allowed.port}/").error == "not sent: only https is allowed"
        assert forbidden.received == []


@pytest.mark.parametrize(
    "found", [["127.0.0.2"], ["127.0.0.1", "127.0.0.2"], ["169.254.169.254"], ["10.0.0.1"], ["100.64.0.1"]]
)
def test_a_name_with_any_forbidden_address_is_not_sent_to(names, settings, found: list[str]):
    settings.JOYNEXUS_WEBHOOK_PORTS = frozenset({443})
    names(found)
    answer = post(f"https://{NAME}/")
    assert (answer.status, answer.error) == (None, "not sent: its address is not a public one")


def test_a_redirect_is_not_followed():
    with receiver() as target, receiver() as there:
        there.answer = lambda handler: status(handler, 302, Location=f"http://127.0.0.1:{target.port}/")
        answer = post(f"http://127.0.0.1:{there.port}/")
    assert (answer.status, answer.error) == (302, "answered 302; redirects are not followed")
    assert target.received == []


def test_no_proxy_of_the_environment_is_used(monkeypatch):
    with receiver() as proxy, receiver() as there:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert post(f"http://127.0.0.1:{there.port}/").ok
    assert proxy.received == []


def test_what_was_answered_is_told_by_its_status_only():
    with receiver() as there:
        there.answer = lambda handler: status(handler, 500, b"secret of the inside", X_Secret="inside")
        answer = post(f"http://127.0.0.1:{there.port}/")
    assert (answer.status, answer.error) == (500, "answered 500")
    assert "secret" not in str(answer)


def test_an_answer_that_drips_ends_at_the_deadline(monkeypatch):
    monkeypatch.setattr(sender, "DEADLINE_S", 0.5)

    def drip(stream: socket.socket) -> None:
        for _ in range(100):
            stream.sendall(b"H")
            time.sleep(0.05)

    with raw_server(drip) as port:
        began_s = time.monotonic()
        answer = post(f"http://127.0.0.1:{port}/")
        assert time.monotonic() - began_s < 2
    assert not answer.ok
    assert answer.status is None


def test_a_handshake_that_never_ends_is_cut_at_the_deadline(monkeypatch):
    monkeypatch.setattr(sender, "DEADLINE_S", 0.5)
    with raw_server(lambda stream: time.sleep(3)) as port:
        answer = post(f"https://127.0.0.1:{port}/")
    assert answer.duration_ms < 2000
    assert not answer.ok


def test_a_resolver_that_hangs_is_given_up_at_the_deadline(monkeypatch):
    monkeypatch.setattr(sender, "DEADLINE_S", 0.3)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: time.sleep(2))
    answer = post(f"https://{NAME}/")
    assert answer.error.startswith("no answer within")
    assert answer.duration_ms < 1000


def test_an_endless_answer_is_read_to_64_kilobytes():
    sent: list[int] = []

    def pour(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        stream.settimeout(2)
        while len(sent) < 10_000:
            sent.append(stream.send(b"x" * 65536))

    with raw_server(pour) as port:
        answer = post(f"http://127.0.0.1:{port}/")
    assert answer.ok
    assert answer.duration_ms < 2000
    assert sum(sent) < 100 * READ_MAX_BYTES  # what fits into the sockets' buffers, no more


def test_headers_without_end_are_cut_off_too():
    def pour(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            stream.sendall(b"X-A: " + b"b" * 1000 + b"\r\n")

    with raw_server(pour) as port:
        answer = post(f"http://127.0.0.1:{port}/")
    assert answer.duration_ms < 2000


@pytest.mark.parametrize(("said", "error"), [(b"SSH-2.0-OpenSSH\r\n", "the answer is not HTTP"), (b"", "broke")])
def test_something_that_is_not_http_is_told_apart_by_nothing_but_that(said: bytes, error: str):
    def talk(stream: socket.socket) -> None:
        while b"{}" not in stream.recv(65536):
            pass
        stream.sendall(said)

    with raw_server(talk) as port:
        answer = post(f"http://127.0.0.1:{port}/")
    assert answer.status is None
    assert error in answer.error
    assert "SSH" not in answer.error


def test_a_closed_port_and_an_unknown_name_are_told():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert post(f"http://127.0.0.1:{port}/").error == "connection refused"
    assert post("https://name.invalid/").error in {"the name has no address", "no answer within 5 seconds"}
