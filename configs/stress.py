"""Stress checks: commands that measure a confirmed finalist under load or on harder data, and what it must hold."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from nightlab.configs.launcher import placeholders_in
from nightlab.configs.metric_source import MetricSource
from nightlab.configs.problems import Location, Problem, refuse
from nightlab.configs.section import Section
from nightlab.configs.units import Duration

__all__ = ["STRESS_PLACEHOLDERS", "Limit", "Serve", "StressCheck", "ToBaseline", "problems_of_stress"]

CheckName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")]
MetricName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.\-/]*$")]

STRESS_PLACEHOLDERS = frozenset({"seed", "params_file", "output_dir", "run_dir", "results_dir", "python", "port"})
"""Placeholders of a check's commands that the lab itself fills in."""


class Limit(Section):
    """A bound on what a check measures."""

    min: float | None = None
    """Lowest allowed value."""
    max: float | None = None
    """Highest allowed value."""

    @model_validator(mode="after")
    def _bounded(self) -> Limit:
        if self.min is None and self.max is None:
            refuse(Problem("has no bound", (), "give min, max or both"))
        if self.min is not None and self.max is not None and self.min > self.max:
            refuse(Problem("is above max: no value can pass", ("min",), "swap min and max"))
        return self


class ToBaseline(Section):
    """A bound on what a check measures, as a multiple of what it measures of the baseline."""

    min_ratio: Annotated[float, Field(gt=0)] | None = None
    """Lowest allowed multiple, e.g. `0.95`: at most 5 % below the baseline."""
    max_ratio: Annotated[float, Field(gt=0)] | None = None
    """Highest allowed multiple."""

    @model_validator(mode="after")
    def _bounded(self) -> ToBaseline:
        if self.min_ratio is None and self.max_ratio is None:
            refuse(Problem("has no bound", (), "give min_ratio, max_ratio or both"))
        if self.min_ratio is not None and self.max_ratio is not None and self.min_ratio > self.max_ratio:
            refuse(Problem("is above max_ratio: no value can pass", ("min_ratio",), "swap them"))
        return self


class Serve(Section):
    """A server that runs while a check's command does."""

    command: str | list[str]
    """What starts it, with the placeholders of the check's own command; `{port}` is a free port."""
    ready: str
    """Address that answers with a status below 400 once it is ready, e.g. `http://127.0.0.1:{port}/v1/models`."""
    timeout_seconds: Duration = Field(default=120.0, alias="timeout")
    """How long it may take to be ready; the check's own timeout goes on meanwhile."""

    @model_validator(mode="after")
    def _startable(self) -> Serve:
        problems = [*_problems_of_command(self.command)]
        if not re.match(r"https?://", self.ready):
            mend = "for example http://127.0.0.1:{port}/v1/models"
            problems.append(Problem("is no http address", ("ready",), mend, self.ready))
        if problems:
            refuse(*problems)
        return self


class StressCheck(Section):
    """One check of a confirmed finalist, and of the baseline beside it."""

    name: CheckName
    """A slug; it names the check in the report."""
    command: str | list[str]
    """What measures, without a shell. Placeholders as in `launcher.command`, of which `{output_dir}` and `{seed}` are
    those of the run that is put under stress; `{run_dir}` is that run's folder, with its logs; `{results_dir}` is the
    check's own output folder, also `$NIGHTLAB_OUTPUT_DIR`. It runs in a tree of the experiment's commit."""
    serve: Serve | None = None
    """A server to start before the command and to stop after it."""
    metrics: dict[MetricName, MetricSource]
    """What it measures and where that is read from, as under `metrics` of the study, with `{results_dir}` in paths."""
    limits: dict[MetricName, Limit] = Field(default_factory=dict)
    """What the middle value of the repeats must hold, e.g. `{p99_ms: {max: 800}}`."""
    compare: dict[MetricName, ToBaseline] = Field(default_factory=dict)
    """What it must hold as a multiple of the baseline's, e.g. `{f1: {min_ratio: 0.95}}`. Only for metrics above 0."""
    repeats: Annotated[int, Field(ge=1, le=20)] = 3
    """How often it is measured, each time with the weights of another of the experiment's seeds, as far as there are
    as many."""
    timeout_seconds: Duration = Field(default=600.0, alias="timeout")
    """One repeat that takes longer is ended, and counts as failed."""
    when: Literal["winner", "finalists"] = "winner"
    """`winner`: experiments that are confirmed; `finalists`: every one that confirmation has decided about. Only a
    confirmed one can lose by it."""

    @property
    def commands(self) -> list[str | list[str]]:
        """The server's command, if there is one, and the check's."""
        return [*([self.serve.command] if self.serve else []), self.command]

    @model_validator(mode="after")
    def _tells_something(self) -> StressCheck:
        problems = [*_problems_of_command(self.command)]
        if not self.metrics:
            problems.append(Problem("is empty", ("metrics",), "say what the command measures"))
        for section in ("limits", "compare"):
            problems += [
                Problem("is not among the check's metrics", (section, name), "add it to metrics or correct the name")
                for name in getattr(self, section)
                if name not in self.metrics
            ]
        used = [name for command in self.commands for name in placeholders_in(command)]
        if "port" in used and self.serve is None:
            problems.append(Problem("uses {port} without a server", ("command",), "add serve, or write the port"))
        if problems:
            refuse(*problems)
        return self


def _problems_of_command(command: str | Sequence[str]) -> Iterator[Problem]:
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as error:
        yield Problem(f"cannot be split into words: {error}", ("command",), "close the quotes")
        return
    if not words or not words[0].strip():
        yield Problem("is empty", ("command",), "for example {python} stress.py --weights {output_dir}")


def problems_of_stress(
    checks: Iterable[StressCheck], parameters: Mapping[str, object], *, confirms: bool
) -> Iterator[Problem]:
    """What is wrong with the checks beside the rest of the study: names, placeholders, nothing to be checked."""
    seen: set[str] = set()
    for index, check in enumerate(checks):
        at: Location = ("stress", index)
        if check.name in seen:
            yield Problem("is the name of another check", (*at, "name"), "give each its own", check.name)
        seen.add(check.name)
        if not confirms:
            mend = "remove the check, or let search.confirm be true"
            yield Problem("is never run: nothing is confirmed", at, mend)
        for key, command in (("serve", check.serve and check.serve.command), ("command", check.command)):
            place = (*at, "serve", "command") if key == "serve" else (*at, key)
            for name in placeholders_in(command or []):
                if name not in STRESS_PLACEHOLDERS and name not in parameters:
                    known = ", ".join(f"{{{one}}}" for one in sorted(STRESS_PLACEHOLDERS))
                    yield Problem(f"has no known placeholder {{{name}}}", place, f"known are parameters and {known}")
