"""Where webhooks may go: a table of what is refused, and why nothing gets around it."""

import ipaddress

import pytest

from tenants.webhooks.addresses import Forbidden, is_public, require_allowed, target_of

PRIVATE = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
    *("169.254.169.254", "169.254.0.1", "192.0.0.1", "192.0.2.1", "192.88.99.1", "198.18.0.1", "203.0.113.1"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:169.254.169.254"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:808:808::", "2001:0:1::1"),
    *("2001:db8::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "100::1", "4000::1"),
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"]


@pytest.mark.parametrize("text", PRIVATE)
def test_an_address_that_is_not_plainly_public_is_refused(text: str):
    assert not is_public(ipaddress.ip_address(text))
    literal = f"[{text}]" if ":" in text else text
    with pytest.raises(Forbidden, match="not a public one"):
        target_of(f"https://{literal}/hook")


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_is_allowed(text: str):
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "10.1"])
def test_other_spellings_of_a_private_address_are_refused_too(text: str):
    with pytest.raises(Forbidden, match="not a public one"):
        target_of(f"https://{text}/hook")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://hooks.example.org/", "scheme 'http' is not allowed; allowed: https"),
        ("ftp://hooks.example.org/", "scheme 'ftp'"),
        ("file:///etc/passwd", "scheme 'file'"),
        ("hooks.example.org", "scheme ''"),
        ("https://", "host is missing"),
        ("https://user:pass@hooks.example.org/", "user name and password"),
        ("https://hooks.example.org/#part", "fragment"),
        ("https://hooks.example.org:22/", "port 22 is not allowed; allowed: 443, 8443"),
        ("https://hooks.example.org:6379/", "port 6379"),
        ("https://hooks.example.org:99999/", "no address"),
        ("https://[::1/", "no address"),
        ("https://hooks.example.org/a b", "spaces"),
        ("https://hooks.exa\nmple.org/", "spaces and control"),
        ("https://hooks.example.org/\r\nHost: internal", "spaces and control"),
        ("https://hooks.example.org/ü", "percent-encoded"),
        ("https://[fe80::1%25eth0]/", "no name"),
        ("https://hooks_;example.org/", "no name"),
        ("https://" + "a" * 64 + ".org/", "no name"),
    ],
)
def test_an_address_of_another_shape_is_refused_with_the_reason(url: str, why: str):
    with pytest.raises(Forbidden, match=why):
        target_of(url)


def test_a_name_is_taken_apart_and_told_as_hosts_expect_it():
    target = target_of("https://Bücher.example.org:8443/a?b=c")
    assert (target.host, target.port, target.path) == ("xn--bcher-kva.example.org", 8443, "/a?b=c")
    assert target.host_header == "xn--bcher-kva.example.org:8443"
    assert target_of("https://[2606:4700::1111]").host_header == "[2606:4700::1111]"


def test_an_operator_opens_a_network_of_their_own_to_plain_http_and_any_port(settings):
    settings.JOYNEXUS_WEBHOOK_ALLOW = (ipaddress.ip_network("10.1.0.0/16"),)
    assert target_of("http://10.1.2.3:8000/hook").port == 8000
    for url in ("http://10.2.0.1/", "https://10.2.0.1/", "http://8.8.8.8/", "https://127.0.0.1/"):
        with pytest.raises(Forbidden):
            target_of(url)


def test_an_opened_network_does_not_open_what_stands_for_it(settings):
    settings.JOYNEXUS_WEBHOOK_ALLOW = (ipaddress.ip_network("127.0.0.0/8"),)
    with pytest.raises(Forbidden):
        target_of("https://[::ffff:127.0.0.1]/")


def test_a_public_name_at_an_unusual_port_stays_refused_though_a_network_is_open(settings):
    settings.JOYNEXUS_WEBHOOK_ALLOW = (ipaddress.ip_network("127.0.0.0/8"),)
    target = target_of("https://hooks.example.org:22/")
    with pytest.raises(Forbidden, match="port 22"):
        require_allowed(target, ipaddress.ip_address("8.8.8.8"))
