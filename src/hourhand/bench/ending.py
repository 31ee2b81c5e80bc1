"""Being ended from outside: whatever a measurement has started must end with it, or it would go on for ever."""

import asyncio
import signal
from typing import Any, Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def cancel_once_by_signals(task: "asyncio.Task[Any]") -> None:
    """Cancels the task at the first signal. Those that follow change nothing: a second Ctrl-C, while the cluster comes
    to its end, would leave its folders behind."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        for number in ENDING:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        task.cancel()

    for number in ENDING:
        loop.add_signal_handler(number, end)
