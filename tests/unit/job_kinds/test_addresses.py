from ipaddress import ip_address

import pytest

from hourhand.job_kinds.addresses import blocked_because, host_blocked_because

METADATA = [
    "169.254.169.254",
    "2852039166",
    "0xA9FEA9FE",
    "0251.0376.0251.0376",
    "169.254.43518",
    "0xa9.254.0251.254",
    "169.254.169.254.",
    "[::ffff:a9fe:a9fe]",
    "::ffff:169.254.169.254",
    "[fe80::1]",
    "fe80::1%eth0",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "::ffff:0:169.254.169.254",
    "2002:a9fe:a9fe::",
    "::a9fe:a9fe",
    "fd00:ec2::254",
    "fd20:ce::254",
    "168.63.129.16",
    "192.0.0.192",
    "100.100.100.200",
]
PRIVATE = [
    *["127.0.0.1", "127.1", "0", "0.0.0.0", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "[::1]", "[::]"],
    *["fd00::1", "::ffff:127.0.0.1", "localhost", "LOCALHOST.", "a.localhost", "224.0.0.1", "255.255.255.255"],
]
PUBLIC = ["1.1.1.1", "[2606:4700::1111]", "example.com", "example.local", "0xcafe.example", "16843009"]


@pytest.mark.parametrize("host", METADATA)
def test_metadata_addresses_are_blocked_however_they_are_spelled(host):
    assert "never" in (host_blocked_because(host, allow_private=True) or "")
    assert host_blocked_because(host, allow_private=False)


@pytest.mark.parametrize("host", PRIVATE)
def test_private_hosts_are_blocked_unless_allowed_and_the_words_name_the_setting(host):
    assert "kinds.allow_private_targets" in (host_blocked_because(host, allow_private=False) or "")
    assert host_blocked_because(host, allow_private=True) is None


@pytest.mark.parametrize("host", PUBLIC)
def test_public_hosts_are_not_blocked(host):
    assert host_blocked_because(host, allow_private=False) is None


def test_an_address_is_judged_by_what_it_wraps():
    assert blocked_because(ip_address("::ffff:10.0.0.1"), allow_private=False)
    assert blocked_because(ip_address("::ffff:8.8.8.8"), allow_private=False) is None
