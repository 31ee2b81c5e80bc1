"""/api/v1/forecast: what falls due in the hours to come."""

from datetime import datetime
from typing import Final

import msgspec

from hourhand.api.answers import Answer, json_answer
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.parameters import Parameter
from hourhand.model.forecast import HOURS_MAX
from hourhand.operations.forecast import Crowd, Forecast, ForecastMinute, ForecastOperations

_HOURS: Final = Parameter(
    "hours", "How far it looks.", {"type": "integer", "minimum": 1, "maximum": HOURS_MAX, "default": HOURS_MAX}
)


class ForecastView(msgspec.Struct, kw_only=True, rename={"start": "from", "end": "to"}):
    start: datetime
    end: datetime
    executors: int
    slots: dict[str, int]
    due: float
    jobs: int
    looked_at: int
    exact: bool
    words: str
    run_seconds: float | None
    minutes: list[ForecastMinute]
    crowds: list[Crowd]
    notes: list[str]


class ForecastRoutes:
    def __init__(self, forecast: ForecastOperations) -> None:
        self._forecast = forecast

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET", "/api/v1/forecast", self.get, "forecast", "What falls due in the hours to come", ForecastView,
                parameters=(_HOURS,),
            )
        ]  # fmt: skip

    async def get(self, call: Call) -> Answer:
        hours = call.query.integer("hours", HOURS_MAX, 1, HOURS_MAX)
        return json_answer(_view(await self._forecast.forecast(call.caller, hours)))


def _view(found: Forecast) -> ForecastView:
    return ForecastView(**{name: getattr(found, name) for name in found.__struct_fields__})
