"""HTTP jobs cannot be made to call what they must not reach, however it is named: cases 101 to 107 of bad input.

The calls are made in a network of their own, where somebody listens on every address that must not be reached and
counts. Zero is the only number that will do.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ssrf_stage import PUBLIC

from hourhand.job_kinds.registry import KindSettings, kinds_for_checking

NO_SCHEME = ["example.com", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "data:,x", "//a/b"]
THIS_MACHINE = [
    "127.0.0.1", "127.0.0.53", "127.1", "2130706433", "0x7f.1", "017700000001", "0.0.0.0", "0", "[::1]", "[::]",
    "localhost", "LOCALHOST.", "a.localhost", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
]  # fmt: skip
PRIVATE = ["10.0.0.5", "172.16.0.9", "192.168.7.7", "100.64.0.3", "[fd12::1]", "0xa000005", "167772165", "10.5"]
METADATA = [
    "169.254.169.254", "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "[::ffff:a9fe:a9fe]", "169.254.43518",
    "0xa9.0xfe.0xa9.0xfe", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "[fd00:ec2::254]",
    "100.100.100.200", "[fe80::1]", "169.254.169.254.",
]  # fmt: skip
NAMED = ["private.example", "meta.example", "mixed.example"]


def to(target: str) -> str:
    return f"http://good.example/?to=http://{target}/"


@pytest.mark.parametrize("url", NO_SCHEME)
def test_other_schemes_are_refused_at_submission(url: str) -> None:
    [fault] = kinds_for_checking(KindSettings())["http"].check({"url": url})
    assert (fault.pointer, fault.code) == ("/url", "scheme-not-allowed")


@pytest.mark.parametrize("host", [*THIS_MACHINE, *PRIVATE, *METADATA])
def test_blocked_addresses_are_refused_at_submission_however_they_are_spelled(host: str) -> None:
    for field in ({"url": f"http://{host}:8080/x"}, {"url": f"https://user:pass@{host}/"}):
        [fault] = kinds_for_checking(KindSettings())["http"].check(field)
        assert (fault.pointer, fault.code) == ("/url", "target-blocked")


@pytest.mark.parametrize("host", METADATA)
def test_metadata_services_are_refused_even_where_private_targets_are_allowed(host: str) -> None:
    [fault] = kinds_for_checking(KindSettings(allow_private_targets=True))["http"].check({"url": f"http://{host}/"})
    assert fault.code == "target-blocked"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("ssrf")
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    enter = ["unshare", *own, "--net", "--mount"]
    if subprocess.run(
        [*enter, "mount", "--bind", "/etc/hosts", "/etc/hosts"], capture_output=True, check=False
    ).returncode:
        pytest.skip("namespaces cannot be made here")
    cases = {
        "strict": [
            *(f"http://{host}/" for host in (*THIS_MACHINE, *PRIVATE, *METADATA, *NAMED)),
            *map(to, (*THIS_MACHINE, *PRIVATE, *METADATA, *NAMED)),
            "http://good.example/loop",
            *["http://flip.example/"] * 6,
        ],
        "private": [*(f"http://{host}/" for host in METADATA), "http://meta.example/", *map(to, METADATA)],
    }
    command = [*enter, sys.executable, str(Path(__file__).with_name("ssrf_stage.py")), str(folder / "resolv.conf")]
    done = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    return {**told, "said": {grant: dict(_pairs(urls, told["said"][grant])) for grant, urls in cases.items()}}


def _pairs(urls: list[str], said: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for url, word in zip(urls, said, strict=True):
        found.setdefault(url, []).append(word)
    return found


def test_no_listener_that_must_not_be_reached_was_reached(stage: dict[str, Any]) -> None:
    assert set(stage["hits"]) == {PUBLIC}
    assert stage["hits"][PUBLIC] > 0, "the stage itself works"


@pytest.mark.parametrize("host", [*THIS_MACHINE, *PRIVATE, *METADATA, *NAMED])
def test_a_blocked_target_ends_the_attempt(stage: dict[str, Any], host: str) -> None:
    assert stage["said"]["strict"][f"http://{host}/"] == ["target_blocked"]
    assert stage["said"]["strict"][to(host)] == ["redirect_blocked"]


@pytest.mark.parametrize("host", [*METADATA, "meta.example"])
def test_metadata_services_are_never_reached(stage: dict[str, Any], host: str) -> None:
    assert stage["said"]["private"][f"http://{host}/"] == ["target_blocked"]
    if host in METADATA:
        assert stage["said"]["private"][to(host)] == ["redirect_blocked"]


def test_a_name_that_changes_its_address_is_connected_to_where_it_was_judged(stage: dict[str, Any]) -> None:
    assert stage["said"]["strict"]["http://flip.example/"].count("ok") == 2, "twice it was public when it was asked for"
    assert stage["said"]["strict"]["http://flip.example/"].count("target_blocked") == 4
    assert stage["asked"]["flip.example"] == 6, "each call asks once, and connects to what it was told"


def test_redirects_come_to_an_end(stage: dict[str, Any]) -> None:
    assert stage["said"]["strict"]["http://good.example/loop"] == ["too_many_redirects"]
