"""The pages, the OpenAPI document, and the application on its real server."""

import asyncio
import re
from typing import Any

import httpx
import msgspec
import pytest
from api_fakes import TOKEN
from granian.constants import Interfaces
from granian.server.embed import Server

from held_ports import held_port
from hourhand.operations.requests import JobPatch, JobRequest

PAGES = ["/", "/docs", "/login?code=x"]


@pytest.mark.parametrize("path", PAGES)
async def test_pages_load_nothing_from_elsewhere_and_have_no_inline_code(
    anonymous: httpx.AsyncClient, path: str
) -> None:
    page = await anonymous.get(path)

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "://" not in page.text
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", page.text)
    for link in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text):
        assert (await anonymous.get(link)).status_code == 200, link


@pytest.mark.parametrize("name", ["start.js", "docs.js", "pages.css", "clock.svg"])
async def test_files_are_checked_for_changes_only(anonymous: httpx.AsyncClient, name: str) -> None:
    first = await anonymous.get(f"/static/{name}")
    again = await anonymous.get(f"/static/{name}", headers={"If-None-Match": first.headers["etag"]})

    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert "innerHTML" not in first.text


async def test_the_start_page_says_how_to_log_in(anonymous: httpx.AsyncClient) -> None:
    assert "hourhand login-link" in (await anonymous.get("/")).text


async def test_the_document_describes_bodies_answers_and_parameters(api: httpx.AsyncClient) -> None:
    document = (await api.get("/openapi.json")).json()
    create = document["paths"]["/api/v1/jobs"]["post"]
    schemas = document["components"]["schemas"]

    assert document["openapi"] == "3.1.0"
    assert create["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/JobRequest"}
    assert create["responses"]["202"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/JobView"
    }
    assert set(schemas["JobRequest"]["properties"]) == set(JobRequest.__struct_fields__)
    assert set(schemas["JobPatch"]["properties"]) == set(JobPatch.__struct_fields__)
    names = {parameter["name"] for parameter in document["paths"]["/api/v1/jobs"]["get"]["parameters"]}
    assert names == {"limit", "cursor", "status", "name", "kind", "queue", "owner", "label", "priority", "namespace"}
    assert "application/x-ndjson" in document["paths"]["/api/v1/jobs/batch"]["post"]["requestBody"]["content"]


async def test_every_reference_of_the_document_exists_and_ids_are_unique(api: httpx.AsyncClient) -> None:
    answer = await api.get("/openapi.json")
    document = answer.json()

    names = set(re.findall(r'"#/components/schemas/([^"]+)"', answer.text))
    operations = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert names <= set(document["components"]["schemas"])
    assert len(operations) == len(set(operations))


async def test_the_application_works_on_granian_in_a_running_loop(app: Any) -> None:
    port = held_port()
    server = Server(app, address="127.0.0.1", port=port, interface=Interfaces.ASGI, log_enabled=False, websockets=False)
    serving = asyncio.create_task(server.serve())
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            await until_answering(client)
            token = {"Authorization": f"Bearer {TOKEN}"}
            created = await client.post("/api/v1/jobs", json={"name": "a"}, headers=token)
            read = await client.get(created.headers["location"], headers=token)
            refused = await client.post(
                "/api/v1/jobs", content=b"{", headers={**token, "Content-Type": "application/json"}
            )
            too_large = await client.post(
                "/api/v1/jobs", content=b" " * 5000, headers={**token, "Content-Type": "application/json"}
            )
            head = await client.head("/livez")
            missing = await client.get("/nothing")
        assert (created.status_code, read.status_code) == (202, 200)
        assert msgspec.json.decode(read.content)["name"] == "a"
        assert (refused.status_code, too_large.status_code, missing.status_code) == (400, 413, 404)
        assert (head.status_code, head.content) == (200, b"")
        assert created.headers["x-content-type-options"] == "nosniff"
        assert b" 408 " in await announce_more_than_is_sent(port)
    finally:
        server.stop()
        await asyncio.wait_for(serving, 10)


async def announce_more_than_is_sent(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
    first_line = await asyncio.wait_for(reader.readline(), 5)
    writer.close()
    return first_line


async def until_answering(client: httpx.AsyncClient) -> None:
    for _ in range(100):
        try:
            await client.get("/livez")
            return
        except httpx.TransportError:
            await asyncio.sleep(0.05)
    raise AssertionError("the server did not come up")
