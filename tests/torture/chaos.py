"""Kills at random moments: of the lab, of the whole machine, and the polite stops."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from nightlab.knowledge.records import RunState, VerdictKind
from tests.torture.invariants import Breach, Night, examine, unchanged
from tests.torture.matrix import Result
from tests.torture.nights import Nursery, Task, family, kill_family

__all__ = ["complete", "cuts_at_the_start", "power_cuts", "random_kills", "random_stops", "twins"]

START_SECONDS = 2.5
"""About what it takes to load nightlab and to check a study; half of all kills fall into it."""
MOST_KILLS_A_NIGHT = 7
CUTS = ("before the mark", "before the command", "after the command")
CUT_EVERY = 1
CUT_RUNS = 10
JOB_SECONDS = 0.4
LONGEST_SECONDS = 240.0
STOPPED = (0, 130, -signal.SIGTERM, -signal.SIGINT)
"""Exit statuses of a stop: at a step, in the preflight, and before Python has come to the lab's own handlers."""


def moments(chance: random.Random, night_seconds: float) -> float:
    """Seconds from a start to a kill: early in half of all cases."""
    return chance.uniform(0.0, chance.choice((START_SECONDS, night_seconds)))


def random_kills(folder: Path, chance: random.Random, kills: int, night_seconds: float) -> Result:
    """As many nights of two slots as it takes until their labs were killed `kills` times at random moments.

    Every other time the lab's git dies with it.
    """
    killed, breaches, nights = 0, [], 0
    while killed < kills:
        task = Task(folder / str(nights), slots=2)
        nights += 1
        most = min(killed + MOST_KILLS_A_NIGHT, kills)
        while killed < most and _dies(task.start(), moments(chance, night_seconds), with_git=killed % 2 == 0):
            killed += 1
        breaches += _result("", 0, task).breaches
    return Result(f"{killed} kills at random", killed, breaches, nights)


def power_cuts(folder: Path, chance: random.Random, cuts: int, night_seconds: float) -> Result:
    """One night in which the machine dies: the lab, its git, every runner and every training process at once."""
    task = Task(folder, slots=2, seconds=JOB_SECONDS)
    done = 0
    while done < cuts:
        lab = task.start()
        with suppress(subprocess.TimeoutExpired):
            lab.wait(START_SECONDS + chance.uniform(0.0, night_seconds))
            break
        kill_family(family(task))
        lab.wait()
        done += 1
    return _result(f"{done} power cuts", done, task, _retried)


def cuts_at_the_start(nursery: Nursery, folder: Path) -> Result:
    """One night in which the machine dies around a command's start: before the job is marked as started, between the
    mark and the command, and right after the command has begun. Where it may have begun it does not begin again."""
    task = Task(folder, runs=CUT_RUNS)
    done, breaches = 0, []
    for when in CUTS:
        task.cut.write_text(json.dumps({"when": when, "skip": CUT_EVERY}))
        done += nursery.run(task) == -signal.SIGKILL
        kill_family(family(task))
    if status := nursery.run(task):
        return Result("cuts at a command's start", done, [_ended_badly(task, status, "taking over")])
    night = Night.of(task)
    lost = [run for run in night.runs if run.cause == "lost"]
    if done != len(CUTS) or len(lost) != len(CUTS) - 1:
        breaches.append(Breach("wrong", f"{done} of {len(CUTS)} cuts were made, and {len(lost)} runs lost"))
    return Result("cuts at a command's start", done, [*breaches, *examine(night), *_retried(night)])


def random_stops(folder: Path, chance: random.Random, stops: int, night_seconds: float) -> Result:
    """One night that is asked to stop at random moments, by SIGTERM and SIGINT in turn; its jobs go on."""
    task = Task(folder, slots=2, seconds=JOB_SECONDS)
    done, breaches = 0, []
    while done < stops:
        lab = task.start()
        with suppress(subprocess.TimeoutExpired):
            lab.wait(moments(chance, night_seconds))
            break
        lab.send_signal((signal.SIGTERM, signal.SIGINT)[done % 2])
        done += 1
        status = _end_of(lab)
        if status not in STOPPED:
            breaches.append(_ended_badly(task, status, "asked to stop"))
    result = _result(f"{done} stops", done, task)
    return result._replace(breaches=breaches + result.breaches)


def twins(folder: Path) -> Result:
    """Two labs started at the same moment: one of them runs the night, the other says so."""
    task = Task(folder, slots=2)
    labs = [task.start() for _ in range(2)]
    statuses = sorted(_end_of(lab) for lab in labs)
    breaches = [] if statuses == [0, 2] else [_ended_badly(task, max(statuses), f"one of two, {statuses},")]
    if "already" not in task.said():
        breaches.append(Breach("wrong", "the second lab does not say that there is one"))
    result = _result("two labs at once", 0, task)
    return result._replace(breaches=breaches + result.breaches)


def _dies(lab: subprocess.Popen[str], seconds: float, *, with_git: bool) -> bool:
    """Kill the lab after `seconds`; False when it had ended before."""
    with suppress(subprocess.TimeoutExpired):
        lab.wait(seconds)
        return False
    (os.killpg if with_git else os.kill)(lab.pid, signal.SIGKILL)
    return lab.wait() == -signal.SIGKILL


def _end_of(lab: subprocess.Popen[str]) -> int:
    try:
        return lab.wait(LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        lab.kill()
        return lab.wait()


def _ended_badly(task: Task, status: int, what: str) -> Breach:
    return Breach("wrong", f"a lab {what} ended with status {status}: {' | '.join(task.said().splitlines()[-4:])}")


def _result(
    name: str, faults: int, task: Task, check: Callable[[Night], Iterator[Breach]] = lambda _: iter(())
) -> Result:
    """Bring the night to its end and look at everything."""
    status = _end_of(task.start())
    if status:
        return Result(name, faults, [_ended_badly(task, status, "taking over")])
    night = Night.of(task)
    breaches = [*examine(night), *complete(night), *check(night)]
    status = _end_of(task.start())
    if status:
        breaches.append(_ended_badly(task, status, "with nothing to do"))
    return Result(name, faults, breaches + unchanged(night, Night.of(task)))


def complete(night: Night) -> list[Breach]:
    """With two slots the order hangs on which job ends first. What holds all the same: every level of the space was
    tried, and the two changes that help were found and confirmed."""
    changes = [experiment.changed for experiment in night.experiments.values()]
    space = {"lr": (0.01, 0.1), "width": (64,), "color": ("blue",), "crash": ("yes",)}
    levels = [(name, level) for name, several in space.items() for level in several]
    untried = [one for one in levels if all(one not in changed.items() for changed in changes)]
    missing = [Breach("lost", f"experiment on {name} {level}") for name, level in untried]
    kept = [e.changed for e in night.experiments.values() if _is_kept(night, e.number)]
    if not any(changed.items() >= {"lr": 0.01, "width": 64}.items() for changed in kept):
        missing.append(Breach("lost", f"the winner; kept were {kept}"))
    if len(night.runs) > 30:
        missing.append(Breach("wrong", f"{len(night.runs)} runs, 30 are allowed"))
    return missing


def _is_kept(night: Night, number: int) -> bool:
    history = night.verdicts[number]
    return bool(history) and history[-1].kind is VerdictKind.KEEP


def _retried(night: Night) -> Iterator[Breach]:
    """A run whose job died with the machine has a second attempt, and both count."""
    attempts = Counter((run.number, run.seed) for run in night.runs)
    for run in night.runs:
        is_lost = run.state is RunState.FAILED and run.cause == "lost"
        if is_lost and attempts[run.number, run.seed] < 2:
            yield Breach("lost", f"run {run.key} died with the machine and was not tried again")
