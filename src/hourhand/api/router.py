"""Finds the endpoint behind a method and a path.

Paths without parameters are looked up whole. The others are compared segment by segment, among those with as many; a
path that is there as it stands goes before one with a parameter in its place. Last come those whose last parameter
takes all that is left.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from hourhand.api.endpoints import Endpoint
from hourhand.api.refusals import MethodNotAllowed, RouteNotFound

_NO_PARAMETERS: Final[Mapping[str, str]] = {}
_Methods = dict[str, Endpoint]


class Router:
    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._exact: dict[str, _Methods] = {}
        self._patterns: dict[int, dict[tuple[str, ...], _Methods]] = {}
        self._tails: dict[tuple[str, ...], _Methods] = {}
        for endpoint in endpoints:
            segments = tuple(endpoint.path.split("/"))
            if endpoint.tail:
                methods = self._tails.setdefault(segments, {})
            elif "{" in endpoint.path:
                methods = self._patterns.setdefault(len(segments), {}).setdefault(segments, {})
            else:
                methods = self._exact.setdefault(endpoint.path, {})
            assert endpoint.method not in methods, f"{endpoint.method} {endpoint.path} is there twice"
            methods[endpoint.method] = endpoint

    def find(self, method: str, path: str) -> tuple[Endpoint, Mapping[str, str]]:
        """The endpoint and its parameters in the path. Raises `RouteNotFound` or `MethodNotAllowed`."""
        methods, parameters = self._at(path)
        endpoint = methods.get(method)
        if endpoint is None:
            raise MethodNotAllowed(method, sorted(methods))
        return endpoint, parameters

    def methods_at(self, path: str) -> list[str]:
        """What can be done there. Raises `RouteNotFound`."""
        return sorted(self._at(path)[0])

    def _at(self, path: str) -> tuple[_Methods, Mapping[str, str]]:
        path = path.rstrip("/") or "/"
        methods = self._exact.get(path)
        if methods is not None:
            return methods, _NO_PARAMETERS
        given = path.split("/")
        for segments, found in self._patterns.get(len(given), {}).items():
            parameters = _fit(segments, given)
            if parameters is not None:
                return found, parameters
        for segments, found in self._tails.items():
            whole = len(segments) - 1
            if len(given) > whole and "" not in given[whole:]:
                parameters = _fit(segments, [*given[:whole], "/".join(given[whole:])])
                if parameters is not None:
                    return found, parameters
        raise RouteNotFound(path)


def _fit(segments: Sequence[str], given: Sequence[str]) -> dict[str, str] | None:
    parameters: dict[str, str] = {}
    for wanted, is_there in zip(segments, given, strict=True):
        if wanted[:1] == "{":
            if not is_there:
                return None
            parameters[wanted[1:-1]] = is_there
        elif wanted != is_there:
            return None
    return parameters
