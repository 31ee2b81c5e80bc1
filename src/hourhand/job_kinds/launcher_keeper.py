"""Stands between the launcher and one program where there are no control groups, and ends when nothing of it is left.

A program that starts a new session, loses its parent and wipes its environment bears no sign any more of whose it was.
But whatever loses its parent becomes a child of the nearest process above that adopts such children: this one, which is
there for one attempt alone. So all of an attempt is found below it, as long as it lives; and it is in nobody's reach
who is contained. Part of the launcher, see `launcher_process.py`.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable

if "hourhand" in sys.modules:
    from hourhand.job_kinds import launcher_kernel as kernel
else:
    import launcher_kernel as kernel  # type: ignore[import-not-found,no-redef]

ASK, KILL = signal.SIGUSR1, signal.SIGUSR2
"""What the launcher tells it: ask all of it to end; kill all of it."""
HEARD = (ASK, KILL, signal.SIGCHLD)
"""Blocked in the launcher already, so that none is missed, and let through again in the program."""
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.002, 0.1
_FOREVER = 3600.0
LOOKS_MAX = 20
"""Of one round of signals: who forks faster than that gets the next one."""


def keep(become: Callable[[], None], report: int, close: Iterable[int]) -> None:
    """In a child of the launcher: starts the program by `become`, which does not return, and sees it through to its
    end. What came of it is written to `report`. `close`: descriptors of the launcher. Never returns."""
    code = 1
    try:
        os.setsid()
        kernel.adopt_orphans()
        kernel.die_with_parent()
        first = os.fork()
        if first == 0:
            become()
        for handle in close:
            os.close(handle)
        status, facts = _to_the_end(first)
        said = b" ".join([b"%d" % number for number in (os.getpid(), first, status)] + [b"%.6f" % f for f in facts])
        os.write(report, said + b"\n")
        code = 0
    finally:
        os._exit(code)


def _to_the_end(first: int) -> tuple[int, list[float]]:
    """Returns when there is nobody below: how the first process ended, and what all of them took."""
    status, facts = 0, [0.0, 0.0, 0.0, 0.0]
    has_grace = kills = False
    pause = PAUSE_SECONDS_MIN
    while True:
        try:
            pid, how, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return status, facts
        if pid:
            took = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, used.ru_inblock * 512, used.ru_oublock * 512
            facts = [facts[0] + took[0], max(facts[1], took[1]), facts[2] + took[2], facts[3] + took[3]]
            if pid == first:
                status, kills = how, kills or not has_grace
            continue
        if kills:
            _send(signal.SIGSTOP)  # stopped, they cannot fork while they are killed
            _send(signal.SIGKILL)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
        heard = signal.sigtimedwait(HEARD, pause if kills else _FOREVER)
        if heard is not None and heard.si_signo == ASK:
            has_grace = True
            _send(signal.SIGTERM)
        kills = kills or (heard is not None and heard.si_signo == KILL)


def _send(number: int) -> None:
    """To everybody below, each once. Who is below somebody who ends of it meanwhile comes to be right below us, where
    we have looked already: so there is a further look until one finds nobody new."""
    told: set[int] = set()
    for _ in range(LOOKS_MAX):
        before = len(told)
        _send_to_new(number, told)
        if len(told) == before:
            return


def _send_to_new(number: int, told: set[int]) -> None:
    ours, fresh = {os.getpid()}, [os.getpid()]
    for parent in fresh:  # it grows meanwhile
        for pid in kernel.children_of(parent):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                handle = os.pidfd_open(pid)
                try:
                    if kernel.parent_of(pid) not in ours:  # only now is the number pinned to one process
                        continue
                    if pid not in told:
                        signal.pidfd_send_signal(handle, number)
                        told.add(pid)
                    ours.add(pid)
                    fresh.append(pid)
                finally:
                    os.close(handle)
