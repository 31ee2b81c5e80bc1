"""/api/v1/secrets and /api/v1/audit: what jobs use and nobody reads, and who has done what."""

from datetime import datetime
from typing import Final

import msgspec

from hourhand.api.answers import Answer, header, json_answer
from hourhand.api.decoding import read_body
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.faults import all_faults
from hourhand.api.parameters import Parameter, limit_parameter
from hourhand.model.errors import InvalidParameter
from hourhand.model.local_time import InstantFault, parse_instant
from hourhand.operations.secrets import AuditView, SecretOperations, SecretPatch, SecretRequest, SecretView

BASE: Final = "/api/v1/secrets"
AUDIT: Final = "/api/v1/audit"
_ONE: Final = BASE + "/{name}"
_BYTES_MAX: Final = 512 * 1024
"""A value, in whichever way its characters are escaped."""
_ID_MAX: Final = 99_999_999_999
_AFTER: Final = Parameter("after", "Begin behind this name: the last one of the page before.")
_FORCE: Final = Parameter("force", "Also while jobs refer to it; their runs fail from then on.", {"type": "boolean"})
_BEFORE: Final = Parameter(
    "before",
    "Older than this id: that of the last entry of the page before.",
    {"type": "integer", "minimum": 1, "maximum": _ID_MAX},
)
_SINCE: Final = Parameter("since", "Not older than this instant.", {"type": "string", "format": "date-time"})
_FILTERS: Final = (
    Parameter("subject", "What was acted on: `secret/NAME`."),
    Parameter("action", "`secret.use`, `secret.write`, `secret.change`, `secret.delete`."),
    Parameter("actor", "The name of a token, or `executor NAME`."),
    Parameter("run_id", "The run that a secret was used for."),
)


class SecretListView(msgspec.Struct):
    secrets: list[SecretView]


class DeletedSecretView(msgspec.Struct):
    deleted: str


class AuditListView(msgspec.Struct):
    entries: list[AuditView]


class SecretRoutes:
    def __init__(self, secrets: SecretOperations) -> None:
        self._secrets = secrets

    def endpoints(self) -> list[Endpoint]:
        tag = "secrets"
        return [
            Endpoint(
                "GET", BASE, self.list_secrets, tag, "Secrets of the namespace, by name; never their values",
                SecretListView, parameters=(limit_parameter(100, 500), _AFTER),
            ),
            Endpoint("GET", _ONE, self.get, tag, "What is known of a secret; never its value", SecretView),
            Endpoint(
                "PUT", _ONE, self.put, tag, "Write the value of a secret", SecretView, 200, SecretRequest,
                body_bytes_max=_BYTES_MAX,
            ),
            Endpoint(
                "PATCH", _ONE, self.change, tag, "Change the description or the grant of a secret", SecretView, 200,
                SecretPatch,
            ),
            Endpoint(
                "DELETE", _ONE, self.delete, tag, "Delete a secret that no job refers to", DeletedSecretView,
                parameters=(_FORCE,),
            ),
            Endpoint(
                "GET", AUDIT, self.list_audit, "audit", "Who has done what, the newest first", AuditListView,
                parameters=(limit_parameter(100, 500), _BEFORE, *_FILTERS, _SINCE),
            ),
        ]  # fmt: skip

    async def list_secrets(self, call: Call) -> Answer:
        limit = call.query.integer("limit", 100, 1, 500)
        return json_answer(SecretListView(await self._secrets.list(call.caller, call.query.text("after"), limit)))

    async def get(self, call: Call) -> Answer:
        return _answer(await self._secrets.get(call.caller, call.path["name"]))

    async def put(self, call: Call) -> Answer:
        request, form = read_body(call.body, SecretRequest)
        if form:
            raise all_faults(form, self._secrets.faults_of_put(request))
        return _answer(await self._secrets.put(call.caller, call.path["name"], request))

    async def change(self, call: Call) -> Answer:
        patch, form = read_body(call.body, SecretPatch)
        if form:
            raise all_faults(form, self._secrets.faults_of_change(patch))
        return _answer(await self._secrets.change(call.caller, call.path["name"], patch))

    async def delete(self, call: Call) -> Answer:
        await self._secrets.delete(call.caller, call.path["name"], call.query.text("force") == "true")
        return json_answer(DeletedSecretView(call.path["name"]))

    async def list_audit(self, call: Call) -> Answer:
        query = call.query
        filters = {
            **{parameter.name: query.text(parameter.name) for parameter in _FILTERS},
            "since": _instant(query.text("since")),
        }
        before = query.integer("before", 0, 1, _ID_MAX) or None
        limit = query.integer("limit", 100, 1, 500)
        return json_answer(AuditListView(list(await self._secrets.audit(call.caller, before, limit, filters))))


def _instant(text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_instant(text)
    except InstantFault as fault:
        raise InvalidParameter("since", str(fault)) from None


def _answer(view: SecretView) -> Answer:
    return json_answer(view, 200, [header("etag", f'"{view.version}"')])
