"""Fetches content into a file, piece by piece; the file is there only when it is whole and its digest right."""

from os import PathLike
from typing import Any

import httpx

from hourhand.client.artifacts import Receiving
from hourhand.client.calls import Call
from hourhand.client.connection import Connection


async def fetch_async(
    connection: Connection, http: httpx.AsyncClient, call: Call[Any], what: str, target: str | PathLike[str]
) -> None:
    request = connection.request(call, http)
    try:
        response = await http.send(request, stream=True)
        try:
            if response.status_code >= 400:
                await response.aread()
                call.result(response)
            with Receiving(what, target) as receiving:
                async for piece in response.aiter_bytes():
                    receiving.take(piece)
                receiving.finish(response.headers.get("etag", ""))
        finally:
            await response.aclose()
    except httpx.HTTPError as error:
        raise connection.lost(error, request) from error


def fetch(connection: Connection, http: httpx.Client, call: Call[Any], what: str, target: str | PathLike[str]) -> None:
    request = connection.request(call, http)
    try:
        response = http.send(request, stream=True)
        try:
            if response.status_code >= 400:
                response.read()
                call.result(response)
            with Receiving(what, target) as receiving:
                for piece in response.iter_bytes():
                    receiving.take(piece)
                receiving.finish(response.headers.get("etag", ""))
        finally:
            response.close()
    except httpx.HTTPError as error:
        raise connection.lost(error, request) from error
