"""Runs any command: placeholders in its words, parameters by command line, environment or file.

The command never meets a shell: text is split into words first, placeholders are replaced inside each word afterwards,
so a value with spaces, quotes or a leading dash stays one word. Values are written as Python writes them (`1e-05`,
`True`); `{{` and `}}` stand for braces, and `${NAME}` is left to the shell of a `bash -c`.

Every run gets `NIGHTLAB_SEED` and `NIGHTLAB_OUTPUT_DIR`, and `NIGHTLAB_PARAMS_FILE` when parameters go by file.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nightlab.configs.study import Scalar, Study
from nightlab.errors import LauncherError
from nightlab.tools.launchers.base import Launch
from nightlab.tools.launchers.distributed import in_processes
from nightlab.tools.launchers.parameter_file import read_parameters, render_parameters

__all__ = ["ScriptLauncher"]

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\$\{[^{}]*\}|\{([^{}]*)\}|[{}]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAKEN_VARIABLES = frozenset(
    [
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TERM", "TMPDIR", "TMP", "TEMP", "TZ", "LANG"),
        *(
            "LANGUAGE",
            "IFS",
            "ENV",
            "BASH_ENV",
            "DISPLAY",
            "HOSTNAME",
            "MAIL",
            "EDITOR",
            "PAGER",
            "CC",
            "CXX",
            "CFLAGS",
        ),
        *("LDFLAGS", "VIRTUAL_ENV", "NIGHTLAB_SEED", "NIGHTLAB_OUTPUT_DIR", "NIGHTLAB_PARAMS_FILE"),
    ]
)
_TAKEN_PREFIXES = ("LC_", "LD_", "DYLD_", "PYTHON", "CUDA_", "OMP_", "MKL_", "GIT_", "SSH_", "XDG_", "CONDA_")


@dataclass(frozen=True)
class ScriptLauncher:
    """The launcher of kind `script` for one study."""

    study: Study

    def files(self, parameters: Mapping[str, Scalar], tree: Path) -> dict[str, str]:
        """The parameter file's path and text when parameters go by file, else nothing. Raises LauncherError."""
        passing = self.study.launcher.parameters
        if passing.via != "file":
            return {}
        return {passing.path: render_parameters(tree, passing.path, self._ordered(parameters))}

    def launch(self, parameters: Mapping[str, Scalar], *, seed: int, tree: Path, output: Path) -> Launch:
        """The command of one run; `tree` and `output` are absolute and appear in it as given. Raises LauncherError."""
        words = self._words()
        places = self._places(seed, tree, output)
        if self.study.launcher.parameters.via == "template":
            self._refuse_unused_changes(words, parameters)
        filled = [_filled(word, places, parameters) for word in words]
        command = tuple(in_processes(self.study, filled, tree=tree, output=output))
        env = self._environment(parameters, places)
        for text in (*command, *env.values()):
            if "\0" in text:
                raise LauncherError(f"launcher.command: {text!r} holds a NUL character, which no command can take")
        return Launch(command, self._cwd(tree), env)

    def read_back(self, tree: Path) -> dict[str, Scalar] | None:
        """The study's parameters as the parameter file states them; empty when it is gone or broken.

        None when parameters do not go by file.
        """
        passing = self.study.launcher.parameters
        if passing.via != "file":
            return None
        try:
            return read_parameters(tree, passing.path, self.study.parameters)
        except LauncherError:
            return {}

    def _ordered(self, parameters: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """In the study's order, whatever order the configuration was put together in."""
        known = [name for name in self.study.parameters if name in parameters]
        return {name: parameters[name] for name in [*known, *sorted(parameters.keys() - set(known))]}

    def _words(self) -> list[str]:
        command = self.study.launcher.command
        return shlex.split(command) if isinstance(command, str) else command

    def _places(self, seed: int, tree: Path, output: Path) -> dict[str, str]:
        """The lab's own placeholders."""
        places = {"seed": str(seed), "output_dir": str(output), "python": sys.executable}
        passing = self.study.launcher.parameters
        if passing.via == "file":
            places["params_file"] = str(tree / passing.path)
        return places

    def _environment(self, parameters: Mapping[str, Scalar], places: Mapping[str, str]) -> dict[str, str]:
        env = {"NIGHTLAB_SEED": places["seed"], "NIGHTLAB_OUTPUT_DIR": places["output_dir"]}
        if "params_file" in places:
            env["NIGHTLAB_PARAMS_FILE"] = places["params_file"]
        passing = self.study.launcher.parameters
        return env | _variables(self._ordered(parameters), passing.prefix) if passing.via == "environment" else env

    def _refuse_unused_changes(self, words: list[str], parameters: Mapping[str, Scalar]) -> None:
        """A changed value that never reaches the command would be searched without effect."""
        used = {match[1] for word in words for match in _PLACEHOLDER.finditer(word)}
        for name, value in parameters.items():
            if name not in used and repr(value) != repr(self.study.parameters.get(name)):
                raise LauncherError(
                    f"launcher.command: {name} is to be {value!r}, but the command has no place for it (write "
                    f"{{{name}}} where its value belongs)"
                )

    def _cwd(self, tree: Path) -> Path:
        cwd = tree / self.study.launcher.cwd
        if not cwd.resolve().is_relative_to(tree.resolve()) or not cwd.is_dir():
            raise LauncherError(f"launcher.cwd: {self.study.launcher.cwd!r} is not a folder of the repository")
        return cwd


def _filled(word: str, places: Mapping[str, str], parameters: Mapping[str, Scalar]) -> str:
    """One word of the command with its placeholders replaced."""

    def text(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        if match[0].startswith("$"):
            return match[0]
        name = match[1]
        if name in places and name in parameters:
            raise LauncherError(
                f"launcher.command: {{{name}}} is both the lab's and a parameter (rename the parameter)"
            )
        if name in places:
            return places[name]
        if name in parameters:
            return str(parameters[name])
        known = ", ".join(f"{{{known}}}" for known in [*parameters, *places])
        raise LauncherError(
            f"launcher.command: {word!r} has no known placeholder {match[0]!r}; known are {known} (a brace itself is "
            "written twice)"
        )

    return _PLACEHOLDER.sub(text, word)


def _variables(parameters: Mapping[str, Scalar], prefix: str) -> dict[str, str]:
    """`<prefix><NAME>` of every parameter; a name that programs give a meaning of their own is refused."""
    variables: dict[str, str] = {}
    for name, value in parameters.items():
        variable = prefix + re.sub(r"[^A-Za-z0-9]", "_", name).upper()
        problem = _problem(variable, variables)
        if problem:
            raise LauncherError(f"launcher.parameters.prefix: parameter {name} would be {variable}, which {problem}")
        variables[variable] = str(value)
    return variables


def _problem(variable: str, variables: Mapping[str, str]) -> str | None:
    if not _VARIABLE.fullmatch(variable):
        return "is no name of a variable (use letters, digits and underscores in the prefix)"
    if variable in variables:
        return "another parameter already has (rename one of them)"
    if variable in _TAKEN_VARIABLES or variable.startswith(_TAKEN_PREFIXES):
        return "has a meaning of its own (set a prefix, for example HP_)"
    return None
