"""The job of a stress check that needs a server: `python -m nightlab.tools.stress.job PLAN`.

PLAN is JSON (`Plan`). The server is ended whatever becomes of the command, whose exit status is the job's.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from pydantic import BaseModel

from nightlab.errors import StressError
from nightlab.tools.stress.server import free_port, serving

__all__ = ["PORT", "Plan", "main"]

PORT = "{port}"


class Plan(BaseModel):
    """A server and the command that measures it; `{port}` in any word is the free port."""

    serve: tuple[str, ...]
    ready: str
    timeout_seconds: float
    command: tuple[str, ...]
    log: Path
    """What the server prints."""

    @property
    def job(self) -> tuple[str, ...]:
        """The command of the job."""
        # Without the current folder on the path: the user's tree may hold modules of any name.
        return (sys.executable, "-P", "-m", __name__, self.model_dump_json())


def _ended(number: int, _frame: FrameType | None) -> None:
    # An exception, so that the server is ended on the way out.
    raise SystemExit(128 + number)


def main(text: str) -> int:
    """Run the plan; returns the exit status of its command, 1 where the server did not get ready."""
    signal.signal(signal.SIGTERM, _ended)
    plan, port = Plan.model_validate_json(text), str(free_port())
    serve, command = ([word.replace(PORT, port) for word in words] for words in (plan.serve, plan.command))
    try:
        with serving(serve, ready=plan.ready.replace(PORT, port), timeout_seconds=plan.timeout_seconds, log=plan.log):
            return subprocess.run(command, check=False).returncode
    except (StressError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
