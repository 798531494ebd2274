"""A lab that kills itself: wraps the functions of `boundaries` in the lab's own process, then runs the command line.

Run as a program it loads nightlab once and forks a lab for every line of JSON on stdin, since loading takes longer than
a small night; it answers with the process id, and with the exit status once the lab has ended::

    {"arguments": ["run", "study.yaml"], "folder": "/…", "output": "/…/lab.log", "environment": {…}, "gate": "/…/gate",
     "fault": ["submit", "before", 3] or null, "counts": "/…/counts.json" or null, "runner": "/…/runner.py" or null}
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])

from tests.torture.boundaries import BOUNDARIES, HAPPENINGS, Boundary

__all__ = ["Fault", "Tripwire", "hold_jobs_at", "install", "load_everything"]


TRAINING_ONLY = ("torch", "transformers")
"""Libraries that no lab loads: what needs them runs inside a training job."""


class Fault(NamedTuple):
    """Where a lab is to die."""

    name: str
    """Of the boundary."""
    when: str
    """`before` or `after` the effect."""
    turn: int
    """The first pass is 1."""

    def __str__(self) -> str:
        return f"{self.when} {self.name} {self.turn}"


class Tripwire:
    """Counts the passes of every boundary, and ends this process at the one that was asked for."""

    def __init__(self, fault: Fault | None) -> None:
        self.fault = fault
        self.counts: dict[str, int] = {}
        """Name → passes, in the order of the last passes."""
        self._lock = threading.Lock()

    def enter(self, name: str) -> int:
        """The number of this pass."""
        with self._lock:
            self.counts[name] = self.counts.get(name, 0) + 1
            return self.counts[name]

    def reach(self, name: str, when: str, turn: int) -> None:
        if self.fault == (name, when, turn):
            os.kill(os.getpid(), signal.SIGKILL)
        with self._lock:
            self.counts[name] = self.counts.pop(name)


def install(wire: Tripwire) -> None:
    """Wrap every boundary. Raises AttributeError or ModuleNotFoundError for one that is no longer there."""
    for name, boundary in (BOUNDARIES | HAPPENINGS).items():
        _wrap(name, boundary, wire)


def _wrap(name: str, boundary: Boundary, wire: Tripwire) -> None:
    module_name, _, path = boundary.where.partition(":")
    module = importlib.import_module(module_name)
    owner_name, _, attribute = path.rpartition(".")
    owner: Any = getattr(module, owner_name) if owner_name else module
    original = getattr(owner, attribute)
    wrapped = _block(name, original, wire) if boundary.is_block else _call(name, original, wire)
    setattr(owner, attribute, wrapped)
    if not owner_name:
        _replace_imported(original, wrapped)


def hold_jobs_at(gate: Path) -> None:
    """Let jobs go on only while a lab waits for them: then, and only then, there is a file `gate`."""
    from nightlab.graph import nodes

    gate.unlink(missing_ok=True)
    original = nodes.wait

    @functools.wraps(original)
    def wait(*arguments: Any, **options: Any) -> Any:
        gate.touch()
        try:
            return original(*arguments, **options)
        finally:
            gate.unlink()

    nodes.wait = wait


def _replace_imported(original: object, wrapped: object) -> None:
    """Also where `from module import function` has copied the name."""
    for module in [module for key, module in sys.modules.items() if key.partition(".")[0] == "nightlab"]:
        for key, value in list(vars(module).items()):
            if value is original:
                setattr(module, key, wrapped)


def _call(name: str, original: Callable[..., Any], wire: Tripwire) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*arguments: Any, **options: Any) -> Any:
        turn = wire.enter(name)
        wire.reach(name, "before", turn)
        result = original(*arguments, **options)
        wire.reach(name, "after", turn)
        return result

    return call


def _block(name: str, original: Callable[..., Any], wire: Tripwire) -> Callable[..., Any]:
    @functools.wraps(original)
    @contextlib.contextmanager
    def block(*arguments: Any, **options: Any) -> Iterator[Any]:
        turn = wire.enter(name)
        with original(*arguments, **options) as value:
            yield value
            wire.reach(name, "before", turn)
        wire.reach(name, "after", turn)

    return block


def load_everything() -> None:
    """Import every module of the product, so that a forked lab loads nothing and every copied name can be found."""
    import nightlab
    from nightlab.knowledge.catalog import load_catalog
    from nightlab.knowledge.signatures import load_signatures

    for found in pkgutil.walk_packages(nightlab.__path__, "nightlab."):
        if not found.name.endswith("__main__") and ".examples." not in found.name:
            try:
                importlib.import_module(found.name)
            except ModuleNotFoundError as error:
                if error.name not in TRAINING_ONLY:
                    raise
    # Both are kept for the life of a process.
    load_catalog()
    load_signatures()


def _lab(order: dict[str, Any]) -> None:
    """What the forked process does: run the command line under the fault."""
    os.setsid()
    # Ready first, then open to Ctrl-C as any program is.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.chdir(order["folder"])
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(number, target)
    os.environ.update(order["environment"])
    random.seed()
    wire = Tripwire(Fault(*order["fault"]) if order["fault"] else None)
    install(wire)
    if order["runner"]:
        _replace_runner(Path(order["runner"]))
    hold_jobs_at(Path(order["gate"]))
    sys.argv = ["nightlab", *order["arguments"]]
    from nightlab.cli.app import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main()
    finally:
        if order["counts"]:
            _keep_counts(Path(order["counts"]), wire.counts)


def _replace_runner(runner: Path) -> None:
    from nightlab.tools.backends import local

    local.RUNNER = runner


def _keep_counts(file: Path, counts: dict[str, int]) -> None:
    """The most passes of any process, in the order of the last passes."""
    kept: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
    for name, passes in counts.items():
        kept[name] = max(passes, kept.pop(name, 0))
    file.write_text(json.dumps(kept))


def _fork(order: dict[str, Any]) -> None:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _lab(order)
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    sys.stdout.write(f"{pid}\n")
    sys.stdout.flush()
    _, waited = os.waitpid(pid, 0)
    sys.stdout.write(f"{os.waitstatus_to_exitcode(waited)}\n")
    sys.stdout.flush()


def serve() -> None:
    load_everything()
    gc.freeze()
    for line in sys.stdin:
        _fork(json.loads(line))


if __name__ == "__main__":
    serve()
