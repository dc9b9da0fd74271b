"""The judgement of webhook URLs and of the addresses they lead to."""

import ipaddress
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.webhook_target import TargetFault, explain, judge_address, judge_url, place_of

SETTINGS = ("none", "loopback", "all")


@pytest.mark.parametrize(
    "url",
    [
        "https://app.example/hook",
        "https://app.example",
        "https://APP.example:8443/a?b=c&d=%20e",
        "HTTPS://app.example./hook",
        "https://xn--bcher-kva.example/",
        "https://a_b.example/@user",
        "https://8.8.8.8/",
        "https://[2606:4700::1111]/",
    ],
)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_plain_public_https_url_passes_in_every_setting(url, setting):
    assert judge_url(url, setting) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://2130706433/",
        "http://0x7f000001/",
        "http://017700000001/",
        "http://127.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://100.64.0.1/",
        "http://0.0.0.0/",
        "http://169.254.169.254/",
        "http://[fd00::1]/",
        "http://localhost./",
        "http://user@127.0.0.1/",
        "http://0/",
        "http://127.0.0.1./",
        "http://0x7f.1/",
        "http://127.0.0.0x1/",
        "http://1.2.3.4.5/",
        "http://0300.0250.1/",
        "http://[::127.0.0.1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1]/",
        "http://[::]/",
        "http://localhost/",
        "http://LOCALHOST/",
        "http://a.localhost/",
        "http://ip6-localhost/",
        "http://localhost.localdomain/",
        "http://%6c%6f%63alhost/",
        "http://127.0.0.1%2f@public.example/",
        "http://①②⑦.0.0.1/",
        "http://１２７.0.0.1/",
        "http://127。0。0。1/",
        "http://user:pass@app.example/",
        "http://[::ffff:8.8.8.8]/",
        "http://192.168.0.1/",
        "http://10.0.0.1/",
        "http://172.31.255.255/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://[ff02::1]/",
        "http://[fec0::1]/",
        "http://[2001:db8::1]/",
        "http://168.63.129.16/",
        "http://[fd00:ec2::254]/",
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_odd_spellings_of_inside_addresses_are_refused(url, scheme):
    """Field case 109: decimal, octal, hex, short, IPv6, v4-mapped, NAT64, CGNAT, localhost, user info."""
    assert judge_url(url.replace("http", scheme, 1), "none") is not None


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", TargetFault.MALFORMED),
        ("app.example/hook", TargetFault.MALFORMED),
        ("//app.example/hook", TargetFault.MALFORMED),
        ("https:/app.example", TargetFault.MALFORMED),
        ("https://app.example/\r\nHost: other", TargetFault.MALFORMED),
        ("https://app.example/a b", TargetFault.MALFORMED),
        ("https://bücher.example/", TargetFault.MALFORMED),
        ("https://public.example\\@127.0.0.1/", TargetFault.MALFORMED),
        ("https://app.example/" + "a" * 2048, TargetFault.MALFORMED),
        ("ftp://app.example/", TargetFault.SCHEME),
        ("http://app.example/", TargetFault.SCHEME),
        ("file:///etc/passwd", TargetFault.SCHEME),
        ("https://me:secret@app.example/", TargetFault.USER_INFO),
        ("https://app.example/#part", TargetFault.FRAGMENT),
        ("https:///hook", TargetFault.HOST),
        ("https://-bad.example/", TargetFault.HOST),
        ("https://a..b/", TargetFault.HOST),
        ("https://app.example:99999999/", TargetFault.HOST),
        ("https://app.example:/", TargetFault.HOST),
        ("https://app.example:22/", TargetFault.PORT),
        ("https://app.example:6379/", TargetFault.PORT),
        ("https://app.example:0/", TargetFault.PORT),
        ("https://127.1/", TargetFault.HOST),
        ("https://127.0.0.1/", TargetFault.ADDRESS),
    ],
)
def test_each_fault_has_its_own_code_and_a_sentence_without_the_url(url, fault):
    """Field case 113: fragments, spaces, unicode hosts, port 22, ftp and credentials are refused by name."""
    assert judge_url(url, "none") is fault
    assert len(explain(fault)) > 10
    assert "secret" not in explain(fault)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/", "http://[::1]:4000/x", "http://localhost:1/", "http://a.localhost:65535/"]
)
def test_loopback_opens_this_machine_on_any_port_and_nothing_else(url):
    assert judge_url(url, "loopback") is None
    assert judge_url(url, "none") is not None


@pytest.mark.parametrize(
    "url",
    ["http://app.example/", "https://app.example:9000/", "https://10.0.0.1/", "http://[::ffff:127.0.0.1]/"],
)
def test_loopback_does_not_loosen_the_rules_for_other_hosts(url):
    assert judge_url(url, "loopback") is not None


@pytest.mark.parametrize("url", ["http://10.0.0.1:9000/", "http://receiver:8000/", "http://[fd00::1]/"])
def test_all_opens_private_networks_with_http_and_any_port(url):
    assert judge_url(url, "all") is None
    assert judge_url(url, "loopback") is not None


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "fd00:ec2::254", "168.63.129.16", "224.0.0.1", "0.0.0.0", "::", "240.0.0.1"],
)
@pytest.mark.parametrize("setting", SETTINGS)
def test_metadata_multicast_and_unspecified_addresses_stay_shut_in_every_setting(address, setting):
    assert judge_address(address, setting) is TargetFault.ADDRESS


@pytest.mark.parametrize("address", ["", "app.example", "127.1", "0x7f000001", "127.0.0.1 ", "1.1.1.1/8"])
def test_what_is_no_address_is_refused(address):
    assert judge_address(address, "all") is TargetFault.ADDRESS


def test_ports_are_those_that_the_operator_allows():
    ports = frozenset({443, 9443})
    assert judge_url("https://app.example:9443/", "none", ports) is None
    assert judge_url("https://app.example/", "none", ports) is None
    assert judge_url("https://app.example:8443/", "none", ports) is TargetFault.PORT
    assert explain(TargetFault.PORT, ports) == "must use one of the ports 443, 9443"
    assert judge_url("http://127.0.0.1:1/", "loopback", ports) is None


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://App.Example", ("app.example", 443, "app.example", "/")),
        ("HTTPS://app.example.:8443?a=/b", ("app.example", 8443, "app.example:8443", "/?a=/b")),
        ("https://app.example:443/a%20b?c", ("app.example", 443, "app.example", "/a%20b?c")),
        ("https://[2606:4700::1111]:8443/@x", ("2606:4700::1111", 8443, "[2606:4700::1111]:8443", "/@x")),
        ("https://8.8.8.8", ("8.8.8.8", 443, "8.8.8.8", "/")),
    ],
)
def test_what_is_connected_to_is_what_was_judged(url, place):
    """Field case 113: one reading of a URL, for the judge, the look-up, the server name and the Host header."""
    assert judge_url(url, "none") is None
    taken = place_of(url)
    assert (taken.host, taken.port, taken.authority, taken.path) == place
    assert taken.is_address == (":" in taken.host or taken.host == "8.8.8.8")


@given(st.from_regex(r"https://[A-Za-z0-9.\[\]:@_%-]{1,30}(/[!-~]{0,10})?", fullmatch=True))
def test_every_url_that_passes_is_taken_apart_as_the_standard_library_would(url):
    if judge_url(url, "none") is not None:
        return
    place, standard = place_of(url), urlsplit(url)
    assert place.host == (standard.hostname or "").removesuffix(".")
    assert place.port == (standard.port or 443)


@given(st.ip_addresses())
def test_an_address_that_passes_is_global_for_the_standard_library_too(address):
    if judge_address(str(address), "none") is None:
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=4))
def test_every_ipv4_inside_ipv6_is_refused(address):
    embedded = [
        f"::ffff:{address}",
        f"::{address}",
        f"64:ff9b::{address}",
        str(ipaddress.IPv6Address(0x2002 << 112 | int(address) << 80 | 1)),
        str(ipaddress.IPv6Address(0x2001 << 112 | ~int(address) & 0xFFFFFFFF)),
        str(ipaddress.IPv6Address(0x2607F8B0 << 96 | 0x5EFE << 32 | int(address))),
    ]
    assert all(judge_address(text, "none") for text in embedded)


@given(st.text(), st.sampled_from(SETTINGS))
def test_any_text_gets_a_verdict(text, setting):
    judge_url(text, setting)
    judge_url("https://" + text, setting)
    judge_address(text, setting)
