"""What is wrong with a framework's configuration, before anything is started: all of it at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nightlab.configs.study import Scalar, Study
from nightlab.errors import Fault, LauncherError
from nightlab.tools.backends.environment import job_environment
from nightlab.tools.launchers.arguments import Arguments, installed
from nightlab.tools.launchers.base import Launcher
from nightlab.tools.launchers.framework import FrameworkLauncher
from nightlab.tools.launchers.interpreter import interpreter_of
from nightlab.tools.launchers.names import EFFECTIVE_BATCH

__all__ = ["launcher_faults"]


def launcher_faults(study: Study, launcher: Launcher, root: Path, cache_folder: Path | None = None) -> list[Fault]:
    """Every fault of what the launcher would start in the checkout `root`; for a plain command of its processes only.

    The installed framework is asked for its arguments, once for each version where `cache_folder` exists.
    """
    if not isinstance(launcher, FrameworkLauncher):
        return [*_processes(study)]
    try:
        baseline = launcher.document(study.parameters, root)
        user = launcher.user_document(root)
    except LauncherError as error:
        key, _, message = str(error).partition(": ")
        return [Fault(message, key=key) if key.startswith("launcher.") else Fault(str(error), key="launcher")]
    arguments, broken = _arguments(launcher, root, cache_folder)
    check = _Check(launcher, arguments, baseline)
    return [
        *broken,
        *_processes(study),
        *check.of_file(user),
        *check.of_settings(),
        *check.of_parameters(),
        *check.of_changes(root),
    ]


def _processes(study: Study) -> Iterator[Fault]:
    """More processes than a job has GPUs would share them, or fail."""
    distributed, gpus = study.launcher.distributed, study.backend.gpus_per_job
    if distributed and gpus and (distributed.processes or gpus) > gpus:
        mend = f"lower it to {gpus}, or give backend.gpus more for each of the slots"
        yield Fault(f"are more than the {gpus} GPUs of a job", key="launcher.distributed.processes", mend=mend)


def _arguments(launcher: FrameworkLauncher, root: Path, folder: Path | None) -> tuple[Arguments, list[Fault]]:
    """Of the installed framework where it can be asked, else those kept here; and whether it is broken."""
    study = launcher.study
    if launcher.settings.kind == "roll":
        return launcher.arguments, []
    words = [word.replace("{python}", sys.executable) for word in launcher.settings.words]
    python = interpreter_of(words, root / launcher.settings.cwd)
    if python is None:
        return launcher.arguments, []
    env = job_environment(study.backend, {}, 0)
    found = installed(python, launcher.settings.kind, launcher.settings.task, env, folder)
    if isinstance(found, Arguments):
        return found, []
    broken = [Fault(found.reason, key="launcher.command", mend=_MEND_BROKEN)] if found.is_broken else []
    return launcher.arguments, broken


_WAY_OUT = "launcher.unchecked"
_MEND_BROKEN = "mend that environment, or name another in launcher.command; what jobs need goes in backend.env"


class _Check:
    """One configuration's arguments, wherever they were written."""

    def __init__(self, launcher: FrameworkLauncher, arguments: Arguments, baseline: Mapping[str, Any]) -> None:
        self.launcher, self.study = launcher, launcher.study
        self.arguments, self.baseline = arguments, baseline
        self.problems = launcher.problems(baseline)
        self.told: set[str] = set()

    def of_file(self, user: Mapping[str, Any]) -> Iterator[Fault]:
        file = self.launcher.settings.config
        for key, value in self.launcher.leaves(user):
            if self._is_harmless(key):
                continue
            yield from self._one(key, value, f"launcher.config: {file}: {key}")
        if user.get("resume_from_checkpoint"):
            mend = "take it out; to go on from weights, name them as model or adapter"
            yield Fault(
                "a run never goes on from another's checkpoint", key=f"{file}: resume_from_checkpoint", mend=mend
            )

    def of_settings(self) -> Iterator[Fault]:
        settings = self.launcher.settings
        for key, value in settings.settings.items():
            yield from self._one(key, value, f"launcher.settings.{key}")
        for key, value in settings.predict_settings.items():
            yield from self._one(key, value, f"launcher.predict_settings.{key}")
        for name, value in settings.dry_run.items():
            yield from self._named(name, value, f"launcher.dry_run.{name}")

    def of_parameters(self) -> Iterator[Fault]:
        for name, value in self.study.parameters.items():
            yield from self._named(name, value, f"parameters.{name}")
        for key, message, mend in self.problems:
            yield Fault(f"{key} {message}", key=self._place(key), mend=mend)

    def of_changes(self, root: Path) -> Iterator[Fault]:
        """Every single change of the space, as the framework would see it."""
        for place, change in _changes(self.study):
            faults = [fault for name, value in change.items() for fault in self._named(name, value, place)]
            yield from faults or self._refused(place, change, root)

    def _refused(self, place: str, change: Mapping[str, Scalar], root: Path) -> Iterator[Fault]:
        """What the change breaks that the baseline does not."""
        try:
            document = self.launcher.document({**self.study.parameters, **change}, root)
        except LauncherError as error:
            yield Fault(str(error), key=place)
            return
        for key, message, mend in self.launcher.problems(document):
            if (key, message, mend) not in self.problems:
                yield Fault(f"{key} {message}", key=place, mend=mend)

    def _is_harmless(self, key: str) -> bool:
        """Whether an unknown key of the user's file is one the framework drops, and no slip of the pen."""
        known = self.launcher.argument(self.arguments, key) is not None
        return self.launcher.drops_unknown and not known and not self.arguments.closest(key, cutoff=0.93)

    def _named(self, name: str, value: Scalar, place: str) -> Iterator[Fault]:
        """A parameter of the study, under whatever names the framework has for it."""
        if name == EFFECTIVE_BATCH:
            return
        for key in self.launcher.names.keys_of(name):
            yield from self._one(key, self.launcher.fitting(key, value), place, name=name)

    def _one(self, key: str, value: object, place: str, *, name: str | None = None) -> Iterator[Fault]:
        if key in self.launcher.settings.unchecked:
            return
        argument = self.launcher.argument(self.arguments, key)
        shown = key if name in (None, key) else f"{name} ({key})"
        subject = "" if place.endswith(key) else f"{shown} "
        if argument is None:
            if shown not in self.told:
                self.told.add(shown)
                yield Fault(f"{subject}is no argument of {self._framework}", key=place, mend=self._meant(key))
        elif problem := argument.problem_of(value):
            # The list kept here may lack what is new.
            certain = self.arguments.is_installed or not argument.choices
            message = f"{subject.strip()}: {problem[0]}" if subject else problem[0]
            yield Fault(
                message, key=place, mend=problem[1] if certain else f"{problem[1]} Else list it under {_WAY_OUT}"
            )

    def _meant(self, key: str) -> str:
        close = self.arguments.closest(key)
        meant = f"did you mean {' or '.join(close)}? Else" if close else "correct the name, or"
        return f"{meant} list it under {_WAY_OUT}"

    @property
    def _framework(self) -> str:
        settings = self.launcher.settings
        name = " ".join(part for part in (settings.kind, settings.task) if part)
        how = "installed" if self.arguments.is_installed else "as known here; it could not be asked itself"
        return f"{name} ({self.arguments.version}, {how})"

    def _place(self, key: str) -> str:
        """Where an argument of the baseline was written."""
        settings = self.launcher.settings
        named = next((name for name in self.study.parameters if key in self.launcher.names.keys_of(name)), None)
        if named:
            return f"parameters.{named}"
        if key in settings.settings:
            return f"launcher.settings.{key}"
        return f"launcher.config: {settings.config}" if settings.config else "launcher.settings"


def _changes(study: Study) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """Each level of each factor, alone: where it stands, and what it sets."""
    for name, factor in study.space.items():
        needed = {key: value for key, value in factor.requires.items() if key in study.parameters}
        for value in factor.values:
            yield f"space.{name}", {**needed, name: value}
        for label in factor.settings or {}:
            yield f"space.{name}.settings.{label}", {**needed, **factor.setting(label, study.parameters)}
