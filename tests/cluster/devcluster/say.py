"""How the program speaks: progress on stderr, problems as one exception with words for the user.

Nothing here may write to stdout: it carries results (a path, a JSON line) that other programs read.
"""

import sys
from pathlib import Path


class Problem(Exception):
    """Something the user can act on. Printed without a traceback; the process exits with 1."""


def say(text: str) -> None:
    """One line of progress."""
    print(f"cluster: {text}", file=sys.stderr, flush=True)


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log file, indented, for the text of a Problem."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return f"    (no log at {log})"
    last = [line[:400] for line in text.splitlines()[-lines:]]
    return "\n".join(f"    {line}" for line in last) if last else f"    ({log} is empty)"
