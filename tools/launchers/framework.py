"""What the launchers of training frameworks share: one YAML for an experiment, committed; a command for a run.

The YAML holds nothing of a run: seed and output folder come with the command (or, for ROLL, through the environment),
so that every seed of an experiment runs from the same commit.
"""

from __future__ import annotations

import copy
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from nightlab.configs.code import settings_of
from nightlab.configs.launcher import LauncherSettings
from nightlab.configs.study import Scalar, Study
from nightlab.errors import LauncherError
from nightlab.knowledge.catalog import Catalog
from nightlab.tools.launchers import yaml_text
from nightlab.tools.launchers.arguments import Argument, Arguments
from nightlab.tools.launchers.base import Launch
from nightlab.tools.launchers.distributed import processes_of
from nightlab.tools.launchers.names import EFFECTIVE_BATCH, Names

__all__ = ["PER_DEVICE", "STEPS", "FrameworkLauncher", "dotted", "put"]

PER_DEVICE = "per_device_train_batch_size"
STEPS = "gradient_accumulation_steps"

Document = dict[str, Any]


class FrameworkLauncher(ABC):
    """The part of a launcher that does not depend on the framework."""

    arguments: Arguments
    """The arguments that names are told by: those kept here, so that every machine translates alike."""
    own_keys: frozenset[str]
    """What a run sets for itself; the user's file has no say in it."""
    drops_unknown = False
    """Whether the framework drops a key it does not know, and files are written with that in mind."""
    batch_keys: tuple[str, str] = (PER_DEVICE, STEPS)
    """Where the framework keeps examples a device and steps of accumulation."""

    def __init__(self, study: Study, catalog: Catalog | None = None) -> None:
        self.study = study
        self.names = Names(study, lambda key: self.argument(self.arguments, key) is not None, catalog)

    @property
    def settings(self) -> LauncherSettings:
        return self.study.launcher

    @property
    def processes(self) -> int:
        """Processes of one run."""
        return processes_of(self.study)

    @abstractmethod
    def _completed(self, document: Document) -> Document:
        """With what the lab adds where nobody said anything."""

    @abstractmethod
    def launch(self, parameters: Mapping[str, Scalar], *, seed: int, tree: Path, output: Path) -> Launch:
        """The command of one run. Raises LauncherError."""

    def problems(self, document: Mapping[str, Any]) -> list[tuple[str, str, str]]:  # noqa: ARG002
        """What the framework would refuse: key, message, mend."""
        return []

    def document(self, parameters: Mapping[str, Scalar], tree: Path) -> Document:
        """The configuration of an experiment, as the YAML holds it. Raises LauncherError."""
        parameters = settings_of(parameters)
        document = self.user_document(tree)
        for key in self.own_keys:
            document.pop(key, None)
        for key, setting in self.settings.settings.items():
            put(document, key, setting, self._name)
        for name, value in self._ordered(parameters).items():
            if name != EFFECTIVE_BATCH:
                for key in self.names.keys_of(name):
                    put(document, key, self.fitting(key, value), self._name)
        if EFFECTIVE_BATCH in parameters:
            self._put_batch(document, parameters[EFFECTIVE_BATCH])
        return self._completed(document)

    def user_document(self, tree: Path) -> Document:
        """The user's own file; empty without one. Raises LauncherError."""
        path = self.settings.config
        if path is None:
            return {}
        try:
            document = yaml_text.loads((tree / path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise LauncherError(
                f"launcher.config: {path} cannot be read: {error} (correct the path or the file)"
            ) from error
        if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
            raise LauncherError(f"launcher.config: {path} holds no keys with values (name the framework's YAML)")
        return copy.deepcopy(document)

    def argument(self, arguments: Arguments, key: str) -> Argument | None:
        """What is known of an argument; None where the framework has none of that name."""
        head, *rest = key.split(".")
        # What is below the key of a section, only the framework knows.
        return arguments.arguments.get(key) or (Argument() if rest and head in arguments.arguments else None)

    def leaves(self, document: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
        """The arguments a configuration gives."""
        yield from document.items()

    def files(self, parameters: Mapping[str, Scalar], tree: Path) -> dict[str, str]:
        """The framework's YAML. Raises LauncherError when it cannot be made, or the framework would refuse it."""
        document = self.document(parameters, tree)
        if problems := self.problems(document):
            key, message, mend = problems[0]
            raise LauncherError(f"{self._name}: {key} {message} ({mend})")
        return {path: yaml_dump(one) for path, one in self._files(document).items()}

    def _files(self, document: Document) -> dict[str, Document]:
        return {self._written: document}

    def read_back(self, tree: Path) -> dict[str, Scalar] | None:
        """The study's parameters as the YAML states them; empty when it is gone or broken."""
        try:
            document = yaml_text.loads((tree / self._written).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        found = {name: self._stated(document, name) for name in self.study.parameters}
        return {name: value for name, value in found.items() if isinstance(value, bool | int | float | str)}

    def _stated(self, document: object, name: str) -> object:
        if name == EFFECTIVE_BATCH:
            return self._batch(document)
        values = [dotted(document, key) for key in self.names.keys_of(name)]
        value = values[0] if all(repr(one) == repr(values[0]) for one in values) else None
        return ",".join(map(str, value)) if isinstance(value, list) else value

    def fitting(self, key: str, value: Scalar) -> object:
        """A text with commas is a list where the framework takes one."""
        argument = self.argument(self.arguments, key)
        if isinstance(value, str) and argument and argument.many and "," in value:
            return [part.strip() for part in value.split(",")]
        return value

    def _put_batch(self, document: Document, wanted: Scalar) -> None:
        """Accumulate as many steps as make the effective batch."""
        per_device, steps = self.batch_keys
        size = dotted(document, per_device)
        part = self.processes * (size if isinstance(size, int) else 1)
        if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted % part:
            raise LauncherError(
                f"{EFFECTIVE_BATCH} {wanted!r} is no multiple of {part} ({self.processes} processes × {per_device} "
                f"{size if isinstance(size, int) else 1}; choose values that are)"
            )
        put(document, per_device, size if isinstance(size, int) else 1, self._name)
        put(document, steps, wanted // part, self._name)

    def _batch(self, document: object) -> int | None:
        per_device, steps = (dotted(document, key) for key in self.batch_keys)
        if not isinstance(per_device, int) or not isinstance(steps, int):
            return None
        return self.processes * per_device * steps

    def _ordered(self, parameters: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """In the study's order, whatever order the configuration was put together in."""
        known = [name for name in self.study.parameters if name in parameters]
        return {name: parameters[name] for name in [*known, *sorted(parameters.keys() - set(known))]}

    @property
    def _name(self) -> str:
        return self.settings.config or self._written

    @property
    def _written(self) -> str:
        written = self.settings.written
        assert written is not None
        return written

    def _program(self) -> list[str]:
        return [word.replace("{python}", sys.executable) for word in self.settings.words]

    def _cwd(self, tree: Path) -> Path:
        cwd = tree / self.settings.cwd
        if not cwd.resolve().is_relative_to(tree.resolve()) or not cwd.is_dir():
            raise LauncherError(f"launcher.cwd: {self.settings.cwd!r} is not a folder of the repository")
        return cwd

    def _launch(self, command: Sequence[str], env: Mapping[str, str], *, seed: int, tree: Path, output: Path) -> Launch:
        given = {"NIGHTLAB_SEED": str(seed), "NIGHTLAB_OUTPUT_DIR": str(output)}
        return Launch(tuple(command), self._cwd(tree), {**given, **env})


def yaml_dump(document: Document) -> str:
    """YAML text, keys in their order, that readers of YAML 1.1 and 1.2 read alike."""
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def dotted(document: object, key: str) -> object:
    """What stands at a dotted key; None where nothing does."""
    if isinstance(document, dict) and key in document:
        return document[key]
    for part in key.split("."):
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    return document


def put(document: Document, key: str, value: object, file: str) -> None:
    """Set a dotted key. Raises LauncherError where a value stands on the way."""
    node, (*path, last) = document, key.split(".")
    for depth, part in enumerate(path, start=1):
        inner = node.setdefault(part, {})
        if not isinstance(inner, dict):
            raise LauncherError(f"{file}: {'.'.join(path[:depth])} is one value, so it cannot hold {last}")
        node = inner
    if isinstance(node.get(last), dict):
        raise LauncherError(f"{file}: {key} is a section there, not one value (name the parameter inside it)")
    node[last] = value
