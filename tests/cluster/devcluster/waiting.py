"""Waits for conditions, with a deadline, while watching that the processes concerned are alive."""

import time
from collections.abc import Callable, Iterable

from . import processes
from .layout import Layout
from .say import Problem, tail

POLL_SECONDS = 0.1


def until(layout: Layout, what: str, condition: Callable[[], bool], alive: Iterable[str], seconds: float) -> None:
    """Returns when the condition holds; a Problem with the right log when a process ends or time is over."""
    names = list(alive)
    deadline = time.monotonic() + seconds
    while not condition():
        for name in names:
            if processes.running(layout, name) is None:
                log = layout.log_of(name)
                raise Problem(f"{name} ended while waiting for {what}; the end of {log}:\n{tail(log)}")
        if time.monotonic() > deadline:
            logs = "\n".join(f"  the end of {layout.log_of(name)}:\n{tail(layout.log_of(name), 8)}" for name in names)
            raise Problem(f"{what}: not within {seconds:.0f} s\n{logs}")
        time.sleep(POLL_SECONDS)
