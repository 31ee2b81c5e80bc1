"""Uploads that are wrong or mean harm (161 to 167): the exact answer, and nothing of them kept. Signed code."""

import base64
import hashlib
import io
import stat
import struct
import tarfile
import zipfile
from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest
from crew import SetClock
from sample_jobs import START

from hourhand.api.app import ApiOperations, ApiSettings, build_app
from hourhand.blobs.folder import FolderBlobs
from hourhand.job_kinds.artifact_cache import ArtifactCache, ArtifactUnavailable
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.job_kinds.script import ScriptKind
from hourhand.model.artifacts import read_reference, signed_message
from hourhand.model.errors import BadConfiguration
from hourhand.model.outcome import Failed, Succeeded
from hourhand.model.states import Reason
from hourhand.operations.artifacts import ArtifactOperations
from hourhand.operations.requests import Caller
from hourhand.ports.job_kind import Task
from hourhand.runtime.ids import IdSource
from hourhand.runtime.signing import TrustedKeys, make_signing_key, sign, write_signature
from hourhand.wiring import Store

BASE = "/api/v1/artifacts"
SCRIPT = b"#!/bin/sh\necho trusted\n"


class OneCaller:
    async def authenticate(self, token: str, namespace: str | None) -> Caller:
        return Caller("ada", 1, "default")


class Later(SetClock):
    """Each look is a second later, so that ids are in the order of the uploads."""

    def now(self) -> Any:
        self.time += timedelta(seconds=1)
        return self.time


@pytest.fixture
async def blobs(tmp_path: Path) -> AsyncIterator[FolderBlobs]:
    made = FolderBlobs(tmp_path / "blobs")
    await made.check()
    yield made
    await made.close()


Serve = Callable[..., httpx.AsyncClient]


@pytest.fixture
async def serve(store: Store, blobs: FolderBlobs) -> AsyncIterator[Serve]:
    """An API, with the keys that it trusts."""
    clients: list[httpx.AsyncClient] = []

    def serve(trusted: TrustedKeys | None = None) -> httpx.AsyncClient:
        artifacts = ArtifactOperations(store.artifacts, blobs, Later(), IdSource(), trusted)
        used: dict[str, Any] = {"access": OneCaller(), "artifacts": artifacts}
        operations = ApiOperations(**{each.name: used.get(each.name) for each in fields(ApiOperations)})
        transport = httpx.ASGITransport(app=build_app(operations, ApiSettings()))
        headers = {"Authorization": "Bearer hh_ada"}
        clients.append(httpx.AsyncClient(transport=transport, base_url="http://localhost:8420", headers=headers))
        return clients[-1]

    yield serve
    for client in clients:
        await client.aclose()


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in entries:
            packed.writestr(name, content)
    return file.getvalue()


def tarred(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b"") -> bytes:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, link, len(content)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        packed.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def linked(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


def huge(name: str) -> bytes:
    """A zip file of some bytes that says of its one member that it has nearly four gigabytes."""
    small = zipped((name, bytes(77_777)))
    return small.replace(struct.pack("<L", 77_777), struct.pack("<L", 0xFFFFFFF0))


def crowd(count: int) -> bytes:
    """A zip file that lists its one member again and again."""
    one = zipped(("f", b""))
    begin, end = one.index(b"PK\x01\x02"), one.index(b"PK\x05\x06")
    listed = one[begin:end] * count
    return one[:begin] + listed + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(listed), begin, 0)


def form(*parts: tuple[str, bytes], boundary: str = "x1x", end: str = "--") -> bytes:
    body = b""
    for disposition, content in parts:
        body += f"--{boundary}\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + content + b"\r\n"
    return body + f"--{boundary}{end}\r\n".encode()


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


FILE = 'form-data; name="file"; filename="a.sh"'
FIELD = 'form-data; name="a"'
FORM = "multipart/form-data; boundary=x1x"
MIXED = "multipart/mixed; boundary=x1x"
TOO_LARGE = (413, "archive-too-large")


class Bad(NamedTuple):
    row: int
    what: str
    name: str
    content: bytes
    status: int
    code: str
    pointer: str | None = None
    """None: the code is that of the problem, not of a field."""
    query: str = ""
    content_type: str = "application/octet-stream"


MALFORMED = (400, "multipart-malformed")
UNSAFE = (422, "archive-unsafe-path", "")
ROWS = [
    Bad(161, "climbs out", "a.zip", zipped(("../evil", b"x")), *UNSAFE),
    Bad(161, "climbs out deep", "a.tgz", tarred("a/b/../../../evil"), *UNSAFE),
    Bad(161, "absolute", "a.tgz", tarred("/etc/cron.d/evil"), *UNSAFE),
    Bad(161, "drive", "a.zip", zipped(("C:evil", b"x")), *UNSAFE),
    Bad(161, "backslash", "a.zip", zipped(("a\\..\\evil", b"x")), *UNSAFE),
    Bad(161, "link", "a.tgz", tarred("a", tarfile.SYMTYPE, "/etc/passwd"), *UNSAFE),
    Bad(161, "hard link", "a.tgz", tarred("a", tarfile.LNKTYPE, "/etc/passwd"), *UNSAFE),
    Bad(161, "link in a zip", "a.zip", zipped((linked("a"), b"/etc/passwd")), *UNSAFE),
    Bad(161, "device", "a.tgz", tarred("a", tarfile.CHRTYPE), *UNSAFE),
    Bad(161, "pipe", "a.tgz", tarred("a", tarfile.FIFOTYPE), *UNSAFE),
    Bad(162, "bomb", "a.zip", huge("a"), *TOO_LARGE),
    Bad(162, "100,000 entries", "a.zip", crowd(100_000), *TOO_LARGE),
    Bad(162, "nested", "a.zip", zipped(("a.zip", zipped(("b.zip", huge("c"))))), *TOO_LARGE),
    Bad(163, "digest", "a.sh", b"damaged", 422, "digest-mismatch", "/digest", f"digest={digest_of(b'whole')}"),
    Bad(163, "no digest", "a.sh", b"x", 422, "invalid-digest", "/digest", "digest=md5:12"),
    Bad(163, "no signature", "a.sh", b"x", 422, "invalid-signature", "/signature", "signature=abc"),
    Bad(163, "nobody's", "a.sh", b"x", 403, "signature-untrusted", None, f"signature={write_signature(bytes(64))}"),
    Bad(166, "line breaks", "a%0D%0Ab", b"x", 422, "invalid-name", "/name"),
    Bad(166, "NUL", "a%00b", b"x", 422, "invalid-name", "/name"),
    Bad(166, "300 characters", "a" * 300, b"x", 422, "invalid-name", "/name"),
    Bad(167, "no boundary", "a", form((FILE, b"x")), 400, "multipart-boundary", content_type="multipart/form-data"),
    Bad(167, "two boundaries", "a", form((FILE, b"x")), 400, "multipart-boundary", content_type=f"{FORM}; boundary=y"),
    Bad(167, "two files", "a", form((FILE, b"x"), (FILE, b"y")), 400, "multipart-one-file", content_type=FORM),
    Bad(167, "a field first", "a", form((FIELD, b"x"), (FILE, b"y")), 400, "multipart-one-file", content_type=FORM),
    Bad(167, "another boundary", "a", form((FILE, b"x"), boundary="y"), *MALFORMED, content_type=FORM),
    Bad(167, "no end", "a", form((FILE, b"x"))[:-9], *MALFORMED, content_type=FORM),
    Bad(167, "another media type", "a", b"x", 415, "unsupported-media-type", content_type=MIXED),
]  # fmt: skip


async def test_uploads_that_are_wrong_get_their_exact_answer_and_nothing_of_them_is_kept(
    serve: Serve, tmp_path: Path
) -> None:
    api, told = serve(), {}
    for bad in ROWS:
        address = f"{BASE}/{bad.name}" + (f"?{bad.query}" if bad.query else "")
        answer = await api.put(address, content=bad.content, headers={"Content-Type": bad.content_type})
        problem = answer.json()
        of_fields = {fault["pointer"]: fault["code"] for fault in problem["errors"]}
        code = problem["type"].removeprefix("urn:hourhand:problem:")
        told[bad.row, bad.what] = (answer.status_code, of_fields or code)
    assert told == {
        (bad.row, bad.what): (bad.status, bad.code if bad.pointer is None else {bad.pointer: bad.code}) for bad in ROWS
    }
    assert (await api.get(BASE)).json()["artifacts"] == []
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


async def test_a_form_with_one_file_is_an_upload_like_any_other(serve: Serve) -> None:
    api = serve()
    content = b"--x1x\r\nnot a boundary \r\n--x1 nor this\r\n" * 1000
    whole = form((FILE, content.replace(b"--x1x", b"-x1x")), boundary="x1x") + b"behind it"

    async def drops() -> AsyncIterator[bytes]:
        for place in range(0, len(whole), 13):
            yield whole[place : place + 13]

    put = await api.put(f"{BASE}/a", content=drops(), headers={"Content-Type": FORM})
    assert put.status_code == 201, put.text
    assert (await api.get(f"{BASE}/a/content")).content == content.replace(b"--x1x", b"-x1x")
    # As a usual client sends it.
    put = await api.put(f"{BASE}/b", files={"file": ("b.sh", SCRIPT)})
    assert put.json()["digest"] == digest_of(SCRIPT)


# --- signatures -------------------------------------------------------------------------------------------


class Signer:
    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / name
        self.public = make_signing_key(self._file)

    def sign(self, name: str, content: bytes) -> str:
        return write_signature(sign(self._file, signed_message(name, digest_of(content).removeprefix("sha256:"))))


@pytest.fixture
def ours(tmp_path: Path) -> Signer:
    return Signer(tmp_path, "ours.pem")


@pytest.fixture
def theirs(tmp_path: Path) -> Signer:
    return Signer(tmp_path, "theirs.pem")


async def put(api: httpx.AsyncClient, name: str, content: bytes, signature: str | None) -> tuple[int, str]:
    query = {} if signature is None else {"signature": signature}
    answer = await api.put(f"{BASE}/{name}", content=content, params=query)
    return answer.status_code, answer.json().get("type", "").rpartition(":")[2]


async def test_where_signatures_are_required_code_that_nobody_vouches_for_is_refused(
    serve: Serve, ours: Signer, theirs: Signer
) -> None:
    api = serve(TrustedKeys([ours.public], required=True))
    good = ours.sign("tool", SCRIPT)
    told = {
        "unsigned": await put(api, "tool", SCRIPT, None),
        "by another key": await put(api, "tool", SCRIPT, theirs.sign("tool", SCRIPT)),
        "of other content": await put(api, "tool", SCRIPT + b" ", good),
        "as something else": await put(api, "tool.sh", SCRIPT, good),
        "cut short": await put(api, "tool", SCRIPT, good[:-4]),
        "signed": await put(api, "tool", SCRIPT, good),
    }
    assert told == {
        "unsigned": (403, "signature-required"),
        "by another key": (403, "signature-untrusted"),
        "of other content": (403, "signature-untrusted"),
        "as something else": (403, "signature-untrusted"),
        "cut short": (422, "invalid-fields"),
        "signed": (201, ""),
    }
    [kept] = (await api.get(BASE)).json()["artifacts"]
    assert kept["signed_by"] == hashlib.sha256(base64.b64decode(ours.public)).hexdigest()[:16]


async def test_a_signature_stays_when_the_same_is_uploaded_without_one(serve: Serve, ours: Signer) -> None:
    api = serve(TrustedKeys([ours.public]))
    await put(api, "tool", SCRIPT, ours.sign("tool", SCRIPT))
    await put(api, "tool", SCRIPT, None)
    assert (await api.get(f"{BASE}/tool")).json()["signed_by"] is not None
    await put(api, "other", SCRIPT, None)
    assert (await api.get(f"{BASE}/other")).json()["signed_by"] is None


async def test_executors_run_only_what_their_own_keys_have_signed_whatever_the_api_kept(
    serve: Serve, store: Store, blobs: FolderBlobs, tmp_path: Path, ours: Signer, theirs: Signer
) -> None:
    """An API without the setting, or a row that somebody wrote into the database, makes no executor run anything."""
    lenient = serve(TrustedKeys([ours.public, theirs.public]))
    await put(lenient, "good", SCRIPT, ours.sign("good", SCRIPT))
    await put(lenient, "unsigned", SCRIPT, None)
    await put(lenient, "foreign", SCRIPT, theirs.sign("foreign", SCRIPT))
    table = f"{store.database.schema}.artifacts"
    async with store.database.connection() as db:  # the signature of one under the name of another
        await db.execute(
            f"INSERT INTO {table} SELECT $1, namespace_id, 'stolen', digest, size, form, entries, unpacked_bytes,"
            f" uploaded_at, uploaded_by, signature, signed_by FROM {table} WHERE name = 'good'",
            uuid4(),
        )
    trusted = TrustedKeys([ours.public], required=True)
    cache = ArtifactCache(tmp_path / "cache", 1_000_000, store.artifacts, blobs, trusted)
    kind = ScriptKind(ProgramRunner(ProgramSettings(grace_seconds=0.2)), None, cache)
    await kind.open()
    outcomes = {}
    for name in ("good", "unsigned", "foreign", "stolen", f"unsigned@{digest_of(SCRIPT)}"):
        payload = {"artifact": name, "argv": ["./good"]}
        log: Any = lambda stream, text: None  # noqa: E731
        outcomes[name] = await kind.run(Task(uuid4(), uuid4(), "default", "a job", "script", payload, 1, 5, START, log))
    await kind.close()

    assert outcomes.pop("good") == Succeeded({"exit_code": 0})
    for name, outcome in outcomes.items():
        assert isinstance(outcome, Failed), name
        assert (outcome.reason, outcome.retryable) == (Reason.NOT_STARTED, False), name
        assert "is not signed by one of kinds.artifact_keys" in outcome.error
    for name in ("unsigned", "foreign", "stolen"):
        reference = read_reference(name)
        assert reference is not None
        with pytest.raises(ArtifactUnavailable):
            await cache.find("default", reference)


def test_keys_that_are_none_are_all_told() -> None:
    with pytest.raises(BadConfiguration) as raised:
        TrustedKeys(["abc", base64.b64encode(bytes(31)).decode(), base64.b64encode(bytes(32)).decode(), "ä"])
    assert len(raised.value.faults) == 3
