"""The OpenAPI document, made from the endpoints themselves, so that it cannot say anything else than they do."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hourhand.api.answers import JSON, PROBLEM
from hourhand.api.auth import SESSION_COOKIE
from hourhand.api.endpoints import Endpoint
from hourhand.api.parameters import Parameter
from hourhand.api.problems import Problem

_REFERENCE: Final = "#/components/schemas/{name}"
_PATH_PARAMETER: Final = re.compile(r"\{(\w+)\}")


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    kinds = [kind for endpoint in endpoints for kind in (endpoint.body, endpoint.answer) if kind is not None]
    unique = list({repr(kind): kind for kind in [Problem, *kinds]}.values())
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REFERENCE)
    schema_of = {repr(kind): schema for kind, schema in zip(unique, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hourhand",
            "version": "1",
            "description": "Errors are problem documents (RFC 9457). Times are RFC 3339 in UTC.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": SESSION_COOKIE},
            },
        },
        "security": [{"token": []}, {"session": []}],
    }


def _operation(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.operation_id,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": _path_schema(name)}
                for name in _names(endpoint)
            ),
            *(_parameter(parameter, "query") for parameter in endpoint.all_parameters),
            *(_parameter(parameter, "header") for parameter in endpoint.headers),
        ],
        "responses": {
            str(endpoint.status): _good_answer(endpoint, schema_of),
            "default": {"description": "Refused", "content": {PROBLEM: {"schema": schema_of[repr(Problem)]}}},
        },
    }
    if endpoint.description:
        operation["description"] = endpoint.description
    if endpoint.public:
        operation["security"] = []
    if endpoint.body is not None:
        schema = schema_of[repr(endpoint.body)]
        content = {media_type: {"schema": schema} for media_type in endpoint.body_media}
        operation["requestBody"] = {"required": endpoint.body_required, "content": content}
    return operation


def _names(endpoint: Endpoint) -> list[str]:
    return _PATH_PARAMETER.findall(endpoint.path)


def _path_schema(name: str) -> dict[str, Any]:
    if name in ("node_id", "version"):
        return {"type": "integer"}
    return {"type": "string", "format": "uuid"} if name.lower().endswith("id") else {"type": "string"}


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    schema = {"type": "array", "items": dict(parameter.schema)} if parameter.repeatable else dict(parameter.schema)
    return {"name": parameter.name, "in": place, "description": parameter.description, "schema": schema}


def _good_answer(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    content = {
        media_type: {"schema": schema_of[repr(endpoint.answer)]}
        if media_type == JSON
        else {"schema": {"type": "string"}}
        for media_type in endpoint.media_types
        if media_type != JSON or endpoint.answer is not None
    }
    return {"description": endpoint.summary, "content": content}
