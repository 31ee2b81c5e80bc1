"""What a browser sees: the start page, the API page, their files, and the way in.

All of it is shipped with the server and works without any other host. Pages hold no data: their scripts ask the API
with the session's cookie.
"""

import hashlib
from collections.abc import Callable
from importlib import resources
from typing import Any, Final

from hourhand.api.answers import HTML, JSON, Answer, encode, header
from hourhand.api.auth import SESSION_COOKIE, LoginThrottle
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.parameters import Parameter
from hourhand.api.refusals import RouteNotFound
from hourhand.model.errors import Unauthenticated
from hourhand.operations.access import Access

_MEDIA_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "html": HTML,
}


class PageRoutes:
    def __init__(self, access: Access, throttle: LoginThrottle, openapi: Callable[[], dict[str, Any]]) -> None:
        self._access = access
        self._throttle = throttle
        self._openapi = openapi
        self._document: bytes | None = None
        self._files = _load_files()

    def endpoints(self) -> list[Endpoint]:
        tag = "pages"
        code = Parameter("code", "The one-time code of a login link.")
        page = ("text/html",)
        return [
            Endpoint("GET", "/", self.start, tag, "Start page", media_types=page, public=True),
            Endpoint("GET", "/docs", self.docs, tag, "The API, readable", media_types=page, public=True),
            Endpoint("GET", "/openapi.json", self.openapi, tag, "The API, for programs", dict[str, Any]),
            Endpoint("GET", "/static/{name}", self.file, tag, "Files of the pages", media_types=page, public=True),
            Endpoint(
                "GET",
                "/login",
                self.login,
                tag,
                "Log in by a link",
                None,
                303,
                parameters=(code,),
                media_types=page,
                public=True,
            ),
        ]

    async def start(self, call: Call) -> Answer:
        return self._page("start.html")

    async def docs(self, call: Call) -> Answer:
        return self._page("docs.html")

    async def openapi(self, call: Call) -> Answer:
        if self._document is None:
            self._document = encode(self._openapi())
        return Answer(self._document, 200, JSON)

    async def file(self, call: Call) -> Answer:
        name = call.path["name"]
        content = self._files.get(name)
        if content is None or name.endswith(".html"):
            raise RouteNotFound(f"/static/{name}")
        tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        headers = [header("etag", tag), header("cache-control", "no-cache")]
        if call.header(b"if-none-match") == tag:
            return Answer(b"", 304, _MEDIA_TYPES[name.rpartition(".")[2]], headers)
        return Answer(content, 200, _MEDIA_TYPES[name.rpartition(".")[2]], headers)

    async def login(self, call: Call) -> Answer:
        """Turns a one-time code into a session. The cookie is out of reach for scripts and foreign pages."""
        self._throttle.check(call.client_address)
        try:
            token, lifetime_seconds = await self._access.login(call.query.text("code") or "")
        except Unauthenticated:
            self._throttle.count_failure(call.client_address)
            return self._page("login_failed.html", 401)
        secure = "; Secure" if call.base_url.startswith("https:") else ""
        cookie = f"{SESSION_COOKIE}={token}; Path=/; Max-Age={lifetime_seconds}; HttpOnly; SameSite=Lax{secure}"
        return Answer(b"", 303, HTML, [header("location", "/"), header("set-cookie", cookie)])

    def _page(self, name: str, status: int = 200) -> Answer:
        return Answer(self._files[name], status, HTML)


def _load_files() -> dict[str, bytes]:
    folder = resources.files("hourhand.api") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _MEDIA_TYPES}
