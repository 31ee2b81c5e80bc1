"""Lets an attempt record its end in the same transaction as its work: both happen, or neither does.

The end is written under the attempt's fence. If that has passed, or the run is being cancelled, nothing is committed.
When the connection breaks during the commit, the run itself is asked afterwards whether it happened.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final

from hourhand.executor.outputs import InHand, Outputs, wants_blob
from hourhand.executor.recorder import Recorder
from hourhand.executor.secrets import masked_result
from hourhand.model.errors import (
    BlobsUnavailable,
    CommitUnknown,
    DatabaseUnavailable,
    ResultTooLarge,
    RunTaken,
    TransactionLost,
)
from hourhand.model.run_blobs import RESULT_INLINE_BYTES_MAX
from hourhand.model.states import RunState
from hourhand.ports.stores import CompletionStore, Finish, OpenCompletion
from hourhand.runtime.clock import DatabaseClock

LOGS_SECONDS_MAX: Final = 5.0
"""How long the end of a run waits for its lines to be stored before it."""
_ASK_SECONDS_MAX: Final = 2.0


class Transactions:
    def __init__(
        self,
        completions: CompletionStore,
        recorder: Recorder,
        clock: DatabaseClock,
        connections_max: int,
        outputs: Outputs | None = None,
    ) -> None:
        self._outputs = outputs
        self.completions = completions
        self._recorder = recorder
        self._clock = clock
        # Waited for here and not in the pool, whose patience is meant for a database that does not answer.
        self.places = asyncio.Semaphore(connections_max)

    def of(self, attempt: InHand) -> Callable[[Callable[[], Any]], "RunTransaction"]:
        return partial(RunTransaction, self, attempt)

    async def finish_of(self, attempt: InHand, result: Any) -> Finish:
        """The end of the run, once every line that it has logged can be read and all that it leaves is kept."""
        if attempt.masker is not None:
            result = await masked_result(result, attempt.masker)
        if wants_blob(result):
            if self._outputs is None:
                raise ResultTooLarge(len(getattr(result, "encoded", b"")), RESULT_INLINE_BYTES_MAX)
            result = await self._outputs.stored_result(attempt, result)
        if attempt.output_fault is not None:
            raise BlobsUnavailable(attempt.output_fault)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._recorder.logs_written(), LOGS_SECONDS_MAX)
        claim = attempt.claim
        now = self._clock.now()
        return Finish(
            claim.run_id,
            claim.fence,
            RunState.SUCCEEDED,
            attempt.started_at,
            now,
            result=result,
            files=attempt.files,
        )


class RunTransaction:
    """`async with ctx.transaction() as db`, once."""

    def __init__(self, transactions: Transactions, attempt: InHand, result: Callable[[], Any]) -> None:
        self._transactions = transactions
        self._attempt = attempt
        self._result = result
        self._open: OpenCompletion | None = None

    async def __aenter__(self) -> Any:
        if self._attempt.recorded:
            raise RuntimeError("the run is complete: only one ctx.transaction() of a run can be committed")
        await self._transactions.places.acquire()
        try:
            self._open = await self._transactions.completions.begin()
        except BaseException:
            self._transactions.places.release()
            raise
        return self._open.connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._open is not None
        try:
            if error is None:
                await self._complete(self._open)
            elif self._open.is_lost_by(error):
                raise TransactionLost from error
        finally:
            try:
                await _to_the_end(self._open.close())
            finally:
                self._transactions.places.release()

    async def _complete(self, opened: OpenCompletion) -> None:
        finish = await self._transactions.finish_of(self._attempt, self._result())
        try:
            await _to_the_end(self._commit(opened, finish))
        except CommitUnknown as fault:
            await _to_the_end(opened.close())  # its place may be the only one from which can be asked
            self._attempt.recorded = await self._ask(finish)
            if not self._attempt.recorded:
                raise DatabaseUnavailable(f"{fault}; nothing was committed") from fault
        if not self._attempt.recorded:
            raise RunTaken(finish.run_id)

    async def _commit(self, opened: OpenCompletion, finish: Finish) -> None:
        # Noted here and not by who waits: a stop in the middle of the commit takes its answer from that one.
        self._attempt.recorded = await opened.complete(finish)

    async def _ask(self, finish: Finish) -> bool:
        """Whether it was committed, as soon as the database can tell. An attempt that is stopped meanwhile need not
        know: whatever is recorded for it then is refused if the commit has happened."""
        pause = 0.05
        while True:
            try:
                return await self._transactions.completions.is_recorded(finish)
            except DatabaseUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _ASK_SECONDS_MAX)


async def _to_the_end(work: Coroutine[Any, Any, Any]) -> Any:
    """A cancellation is raised when the work is done: a commit must not be left half known."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    value = task.result()
    if cancelled is not None:
        raise cancelled
    return value
