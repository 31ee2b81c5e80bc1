"""TLS of HTTP jobs, against real servers with certificates of their own."""

import aiohttp
import pytest
from http_servers import Authority, Site, fine

from hourhand.job_kinds import http_call
from hourhand.job_kinds.http import HttpKind, HttpSettings
from hourhand.model.errors import BadConfiguration
from hourhand.model.outcome import Succeeded
from hourhand.model.states import Reason


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ours") / "ca", "ours")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("other") / "ca", "other")


@pytest.fixture
async def open_kind():
    kinds = []

    async def open_with(**settings):
        kind = HttpKind(HttpSettings(allow_private=True, **settings))
        kinds.append(kind)
        await kind.open()
        return kind

    yield open_with
    for kind in kinds:
        await kind.close()


async def test_a_certificate_that_nobody_vouches_for_is_not_believed(open_kind, ours, make_task):
    kind = await open_kind()
    async with Site(fine, ours.server_side("IP:127.0.0.1")) as site:
        outcome = await kind.run(make_task({"url": site.url}).task)
        assert outcome.reason is Reason.CONNECTION
        assert outcome.error.startswith(f"the certificate of 127.0.0.1:{site.port} is not believed (")
        assert "tls.ca" in outcome.error
        assert site.requests == []


async def test_a_private_ca_is_believed_when_the_job_names_it(open_kind, ours, other, make_task):
    kind = await open_kind()
    async with Site(fine, ours.server_side("IP:127.0.0.1")) as site:
        assert isinstance(await kind.run(make_task({"url": site.url, "tls": {"ca": ours.pem}}).task), Succeeded)
        # Connections are not shared between those who believe different things.
        assert (await kind.run(make_task({"url": site.url, "tls": {"ca": other.pem}}).task)).reason is Reason.CONNECTION
        assert (await kind.run(make_task({"url": site.url}).task)).reason is Reason.CONNECTION
        assert len(site.requests) == 1


async def test_a_private_ca_is_believed_when_the_operator_names_it(open_kind, ours, make_task):
    kind = await open_kind(ca_file=ours.cert)
    async with Site(fine, ours.server_side("IP:127.0.0.1")) as site:
        assert isinstance(await kind.run(make_task({"url": site.url}).task), Succeeded)


async def test_a_ca_file_that_cannot_be_read_keeps_the_executor_from_starting(tmp_path):
    kind = HttpKind(HttpSettings(ca_file=tmp_path / "missing.pem"))
    with pytest.raises(BadConfiguration, match=r"kinds\.http_ca_file"):
        await kind.open()
    await kind.close()


async def test_the_name_in_the_certificate_is_compared(open_kind, ours, make_task):
    kind = await open_kind()
    async with Site(fine, ours.server_side("DNS:elsewhere.example")) as site:
        outcome = await kind.run(make_task({"url": site.url, "tls": {"ca": ours.pem}}).task)
        assert outcome.reason is Reason.CONNECTION
        assert site.requests == []


async def test_certificates_go_unchecked_only_where_that_is_granted(open_kind, ours, make_task):
    async with Site(fine, ours.server_side("DNS:elsewhere.example")) as site:
        payload = {"url": site.url, "verify_tls": False}
        refused = await (await open_kind()).run(make_task(payload).task)
        assert (refused.reason, refused.retryable) == (Reason.BAD_ARGUMENTS, False)
        assert site.requests == []
        granted = await (await open_kind(allow_unverified_tls=True)).run(make_task(payload).task)
        assert isinstance(granted, Succeeded)


async def test_a_job_can_show_a_certificate_of_its_own(open_kind, ours, make_task):
    kind = await open_kind()
    cert, key = ours.issue("client")
    async with Site(fine, ours.server_side("IP:127.0.0.1", clients=True)) as site:
        tls = {"ca": ours.pem, "cert": cert.read_text(), "key": {"secret": "client-key"}}
        task = make_task({"url": site.url, "tls": tls}).task
        task.secrets = {"client-key": key.read_text()}
        assert isinstance(await kind.run(task), Succeeded)
        nobody = await kind.run(make_task({"url": site.url, "tls": {"ca": ours.pem}}).task)
        assert nobody.reason is Reason.CONNECTION
        assert len(site.requests) == 1


def test_who_shows_no_certificate_where_one_is_asked_for_is_told_so():
    """By the alert, which does not always come through before the connection ends."""
    alert = "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required (_ssl.c:2580)"
    assert http_call._said(aiohttp.ClientOSError(1, alert)).endswith("give one as tls.cert and tls.key")


async def test_certificates_that_are_none_are_told_without_their_text(open_kind, ours, make_task):
    kind = await open_kind()
    broken = "-----BEGIN CERTIFICATE-----\nHUSHHUSH\n-----END CERTIFICATE-----"
    outcome = await kind.run(make_task({"url": "https://127.0.0.1:1", "tls": {"ca": broken}}).task)
    assert (outcome.reason, outcome.retryable) == (Reason.BAD_ARGUMENTS, False)
    assert "HUSH" not in outcome.error
    task = make_task({"url": "https://127.0.0.1:1", "tls": {"cert": ours.pem, "key": {"secret": "k"}}}).task
    task.secrets = {"k": "-----BEGIN PRIVATE KEY-----\nHUSH\n-----END PRIVATE KEY-----"}
    outcome = await kind.run(task)
    assert (outcome.reason, outcome.retryable) == (Reason.BAD_ARGUMENTS, False)
    assert "HUSH" not in outcome.error
