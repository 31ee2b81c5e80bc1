"""Values of secrets for attempts that need them, and what keeps these values out of what attempts say.

They are asked for when an attempt starts, for all that start together at once, and given only for runs that this
executor holds at that moment. A value is in memory while its attempt lasts, and is written nowhere.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import msgspec

from hourhand.model.errors import DatabaseUnavailable, HourhandError
from hourhand.model.masking import CUT_CHARS_MIN, LineMask, Masker
from hourhand.model.outcome import Failed, Interrupted, Outcome, Snoozed, Succeeded
from hourhand.model.run import Claim
from hourhand.model.run_blobs import LargeResult
from hourhand.model.secret_refs import SecretValues, secret_names
from hourhand.model.states import Reason
from hourhand.ports.secret_stores import SecretUses, UsedSecret, WantedSecret
from hourhand.runtime.keyring import Keyring

ASKED_AT_ONCE_MAX: Final = 500
_AGAIN_SECONDS_MAX: Final = 2.0
_MASKERS_MAX: Final = 16
"""Kept for attempts to come: a recurring job needs the same one each time."""
_QUICK_CHARS_MAX: Final = 2000
"""Values up to that length are made into a masker in a millisecond; longer ones elsewhere than in the event loop."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_Asked = tuple[Sequence[WantedSecret], "asyncio.Future[list[UsedSecret]]"]


@dataclass(frozen=True, slots=True)
class Given:
    """What an attempt gets."""

    values: SecretValues
    masker: Masker

    def line_mask(self) -> LineMask:
        return LineMask(self.masker)


class AttemptSecrets:
    def __init__(self, store: SecretUses, keyring: Keyring, executor_id: Callable[[], int]) -> None:
        self._store = store
        self._keyring = keyring
        self._executor_id = executor_id
        self._waiting: list[_Asked] = []
        self._asking: asyncio.Task[None] | None = None
        self._maskers: OrderedDict[frozenset[tuple[int, str, int]], Masker] = OrderedDict()

    async def of(self, claim: Claim) -> Given | Failed | Interrupted:
        """The values that an attempt's payload refers to; or what becomes of the attempt without them."""
        names = secret_names(claim.kind, claim.payload)
        used = await self._ask([WantedSecret(claim.run_id, claim.fence, name) for name in names]) if names else []
        if len(used) < len(names):
            return Interrupted(lease_unsure=True)  # it is another's by now, or nobody's
        missing = [each.place.name for each in used if each.value is None]
        if missing:
            words = f"there is no secret {', '.join(missing)} that this job may use"
            return Failed(Reason.SECRET_UNAVAILABLE, words, retryable=False)
        try:
            values = SecretValues({each.place.name: self._opened(each) for each in used})
        except HourhandError as fault:  # another executor may have the key
            return Failed(Reason.SECRET_UNAVAILABLE, str(fault))
        return Given(values, await self._masker(used, values))

    def _opened(self, used: UsedSecret) -> str:
        assert used.value is not None
        return self._keyring.open(used.value, used.place).decode("utf-8", "surrogateescape")

    async def _masker(self, used: Sequence[UsedSecret], values: SecretValues) -> Masker:
        key = frozenset((each.place.namespace_id, each.place.name, each.place.version) for each in used)
        masker = self._maskers.get(key)
        if masker is None:
            quick = sum(map(len, values.values())) <= _QUICK_CHARS_MAX
            masker = Masker(values) if quick else await asyncio.to_thread(Masker, values)
            self._maskers[key] = masker
        self._maskers.move_to_end(key)
        while len(self._maskers) > _MASKERS_MAX:
            self._maskers.popitem(last=False)
        return masker

    async def _ask(self, wanted: Sequence[WantedSecret]) -> list[UsedSecret]:
        """Together with whatever else is wanted by now."""
        answer: asyncio.Future[list[UsedSecret]] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, answer))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_for_all(), name="secrets")
        return await answer

    async def _ask_for_all(self) -> None:
        try:
            await asyncio.sleep(0)  # all that start in this turn of the loop come along
            while self._waiting:
                asked, self._waiting = self._waiting[:ASKED_AT_ONCE_MAX], self._waiting[ASKED_AT_ONCE_MAX:]
                try:
                    by_attempt = await self._fetched(asked)
                except Exception as fault:  # each attempt says so for itself
                    for _, answer in asked:
                        if not answer.done():
                            answer.set_exception(fault)
                    continue
                for wanted, answer in asked:
                    if not answer.done():  # else the attempt was stopped meanwhile
                        answer.set_result(by_attempt.get((wanted[0].run_id, wanted[0].fence), []))
        finally:
            self._asking = None

    async def _fetched(self, asked: Sequence[_Asked]) -> dict[tuple[UUID, int], list[UsedSecret]]:
        """As soon as the database answers: without values nothing can start. Nothing is asked for attempts that were
        stopped meanwhile."""
        pause = 0.05
        used: Sequence[UsedSecret] = ()
        while wanted := [each for those, answer in asked if not answer.done() for each in those]:
            try:
                used = await self._store.use_secrets(self._executor_id(), wanted)
                break
            except DatabaseUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _AGAIN_SECONDS_MAX)
        found: dict[tuple[UUID, int], list[UsedSecret]] = {}
        for each in used:
            found.setdefault((each.run_id, each.fence), []).append(each)
        return found


async def without_secrets(outcome: Outcome, masker: Masker) -> Outcome:
    """What an attempt said, fit to be stored."""
    match outcome:
        case Succeeded(result) if result is not None:
            return Succeeded(await masked_result(result, masker))
        case Failed():
            result = await masked_result(outcome.result, masker)
            return replace(outcome, error=masker.cut_text(outcome.error), result=result)
        case Snoozed():
            return replace(outcome, message=masker.cut_text(outcome.message))
        case _:
            return outcome


def _ending_well(result: Any, masker: Masker) -> Any:
    """An answer to an HTTP call whose body was cut may end in the middle of a value."""
    if isinstance(result, dict) and result.get("truncated") is True and isinstance(body := result.get("body"), str):
        return {**result, "body": masker.piece(body, begins_cut=False, ends_cut=True, chars_min=CUT_CHARS_MIN)}
    return result


async def masked_result(result: Any, masker: Masker) -> Any:
    """A large one elsewhere than in the event loop: it may have megabytes."""
    if not isinstance(result, LargeResult):
        return masker.json(_ending_well(result, masker))
    return await asyncio.to_thread(lambda: LargeResult(_encode(masker.json(_decode(result.encoded)))))
