"""What starts a run, and how it gets its parameters."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, model_validator

from nightlab.configs.problems import Problem, refuse
from nightlab.configs.section import Section
from nightlab.configs.units import Duration, Flag
from nightlab.configs.values import RepositoryPath, Scalar
from nightlab.configs.wording import show

__all__ = [
    "GIVEN_PLACEHOLDERS",
    "Distributed",
    "LauncherSettings",
    "ParameterPassing",
    "Setting",
    "is_python",
    "placeholders_in",
]

GIVEN_PLACEHOLDERS = frozenset({"seed", "params_file", "output_dir", "python"})
"""Placeholders of a command that the lab itself fills in."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\$\{[^{}]*\}|\{([^{}]*)\}")


def placeholders_in(command: str | list[str]) -> list[str]:
    """Names that stand as `{name}` in the command, in their order; `${NAME}` is the shell's, `{{` is a brace."""
    words = [command] if isinstance(command, str) else command
    found = (match for word in words for match in _PLACEHOLDER.finditer(word))
    return list(dict.fromkeys(match[1] for match in found if match[1] is not None))


Setting = Scalar | list[Scalar]
"""An argument of a framework: one value, or a list of them."""

_NEW_FILE = "nightlab_train.yaml"
_PROGRAMS = {"llamafactory": "llamafactory-cli", "trl": "trl", "roll": "python"}
_TASKS = {
    "trl": ("sft", "dpo", "grpo", "kto", "reward", "rloo"),
    "roll": (
        *("rlvr", "rlvr_vl", "rlvr_rollout", "agentic", "agentic_rollout", "sft", "dpo"),
        *("distill", "distill_vl", "onpolicy_distill"),
    ),
}
_KINDS_OF = {
    "config": ("llamafactory", "trl", "roll"),
    "settings": ("llamafactory", "trl", "roll"),
    "task": ("trl", "roll"),
    "unchecked": ("llamafactory", "trl", "roll"),
    "predict": ("llamafactory",),
    "predict_settings": ("llamafactory",),
}
_STARTED_BY: dict[str, tuple[str, ...]] = {"llamafactory": ("torchrun",), "trl": ("accelerate",), "roll": ()}


class ParameterPassing(Section):
    """How a run gets its parameters."""

    via: Literal["template", "environment", "file"] = "file"
    """`template`: `{name}` placeholders in the command; `environment`: variables `<prefix><NAME>`; `file`: a JSON or
    YAML file in the worktree, also committed on the experiment's branch."""
    path: RepositoryPath = "nightlab_params.json"
    """The parameter file (`.json`, `.yaml` or `.yml`), relative to the worktree, for `via: file`. When the file exists
    in the repository, its other keys are kept."""
    prefix: str = ""
    """Prefix of the environment variables for `via: environment`."""

    @model_validator(mode="after")
    def _writable(self) -> ParameterPassing:
        if self.via == "file" and PurePosixPath(self.path).suffix not in (".json", ".yaml", ".yml"):
            refuse(Problem("is neither .json, .yaml nor .yml", ("path",), "for example nightlab_params.json"))
        return self


class Distributed(Section):
    """How a run is started in several processes."""

    launcher: Literal["torchrun", "accelerate", "deepspeed"]
    """What starts them. LLaMA-Factory starts itself with `torchrun`, `trl` with `accelerate`; a command of kind
    `script` must begin with Python, and may have any of the three."""
    processes: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Processes of one run; without it as many as a job has GPUs."""
    config: RepositoryPath | None = None
    """A file for `accelerate --config_file`, or for `deepspeed --hostfile`."""

    @model_validator(mode="after")
    def _readable(self) -> Distributed:
        if self.config and self.launcher == "torchrun":
            refuse(Problem("torchrun reads no file", ("config",), "remove it, or use accelerate"))
        return self


class LauncherSettings(Section):
    """What starts a run."""

    kind: Literal["script", "llamafactory", "trl", "roll"] = "script"
    """`script`: any command; `llamafactory`, `trl`, `roll`: the framework of that name, whose YAML the lab writes for
    each experiment with parameters under the framework's or the catalog's names."""
    command: str | list[str] = ""
    """The training command, without a shell (`bash -c "…"` where you need one). Placeholders: `{name}` of a parameter,
    `{seed}`, `{params_file}`, `{output_dir}`, `{python}` (the lab's own interpreter). For a framework: what starts its
    program where that is not on the path, e.g. `.venv/bin/llamafactory-cli`; without it `llamafactory-cli`, `trl` or
    `python`."""
    parameters: ParameterPassing = ParameterPassing()
    """How a run of kind `script` gets its parameters."""
    config: RepositoryPath | None = None
    """The framework's YAML that every run starts from. It stays as it is; the lab writes a file of its own beside it,
    with `nightlab_` before the name."""
    settings: dict[str, Setting] = Field(default_factory=dict)
    """Arguments of the framework that are the same for every run, on top of `config`; dots step into nested keys."""
    task: str | None = None
    """What to run: for `trl` one of `sft`, `dpo`, `grpo`, `kto`, `reward`, `rloo`; for `roll` the pipeline, e.g.
    `rlvr`, `agentic`, `sft`, `dpo`, `distill`. LLaMA-Factory has it as `stage`."""
    unchecked: list[str] = Field(default_factory=list)
    """Arguments of the framework that are taken as they are, e.g. of a version or a plugin the lab does not know."""
    predict: Flag = False
    """For `llamafactory`: a second step of each run has the model that was just trained answer `eval_dataset`, into
    `{output_dir}/predict`."""
    predict_settings: dict[str, Setting] = Field(default_factory=dict)
    """Arguments of that second step only, e.g. `{eval_dataset: test, max_new_tokens: 64}`."""
    distributed: Distributed | None = None
    """How a run is started in several processes."""
    cwd: RepositoryPath = "."
    """Folder the command runs in, relative to the worktree."""
    dry_run: dict[str, Scalar] = Field(default_factory=dict)
    """Parameter values that make the preflight's dry run short, e.g. `{steps: 20}`; locked ones are allowed here, and
    for a framework any of its arguments."""
    dry_run_timeout_seconds: Duration = Field(default=120.0, alias="dry_run_timeout")
    """Longest time the dry run may take."""

    @property
    def is_framework(self) -> bool:
        """Whether the lab writes the configuration of a framework, instead of calling a command."""
        return self.kind != "script"

    @property
    def words(self) -> list[str]:
        """The command, or what starts the framework, as words."""
        words = shlex.split(self.command) if isinstance(self.command, str) else self.command
        return words or [_PROGRAMS[self.kind]]

    @property
    def shown(self) -> str:
        """The command for people."""
        if not self.is_framework:
            return self.command if isinstance(self.command, str) else " ".join(self.command)
        parts = (self.kind, self.task, self.config and f"from {self.config}")
        return " ".join(part for part in parts if part)

    @property
    def written(self) -> str | None:
        """The file in the worktree that holds the parameters, if any."""
        if not self.is_framework:
            return self.parameters.path if self.parameters.via == "file" else None
        if self.config is None:
            return _NEW_FILE
        path = PurePosixPath(self.config)
        return str(path.with_name(f"nightlab_{path.stem}.yaml"))

    @property
    def files(self) -> list[str]:
        """Every file in the worktree that the lab writes for a configuration."""
        return [file for file in (self.written, self.predict_written) if file]

    @property
    def predict_written(self) -> str | None:
        """The file of the second step, if there is one."""
        if not self.predict or self.written is None:
            return None
        return str(PurePosixPath(self.written).with_name(f"{PurePosixPath(self.written).stem}_predict.yaml"))

    @model_validator(mode="after")
    def _startable(self) -> LauncherSettings:
        problems = [*self._problems_of_command(), *self._problems_of_kind()]
        if problems:
            refuse(*problems)
        return self

    def _problems_of_command(self) -> Iterator[Problem]:
        try:
            words = shlex.split(self.command) if isinstance(self.command, str) else self.command
        except ValueError as error:
            yield Problem(f"cannot be split into words: {error}", ("command",), "close the quotes")
            return
        if self.is_framework and not words:
            return
        if not words or not words[0].strip():
            yield Problem("is empty", ("command",), "for example {python} train.py --lr {lr}")
        elif self.distributed and self.kind == "script" and not is_python(words[0]):
            mend = "for example {python} train.py; the lab puts the launcher in between"
            yield Problem(f"must begin with Python to be started by {self.distributed.launcher}", ("command",), mend)

    def _problems_of_kind(self) -> Iterator[Problem]:
        for key, kinds in _KINDS_OF.items():
            if self.kind not in kinds and getattr(self, key):
                others = " and ".join(kinds)
                yield Problem(
                    f"belongs to kind {others}, not {self.kind}", (key,), f"set kind: {kinds[0]} or remove it"
                )
        if self.is_framework and self.parameters != ParameterPassing():
            mend = "remove it; parameters go into the framework's YAML"
            yield Problem(f"belongs to kind script, not {self.kind}", ("parameters",), mend)
        tasks = _TASKS.get(self.kind)
        if tasks and self.task not in tasks:
            said = "is missing" if self.task is None else f"{show(self.task)} is none of {self.kind}"
            yield Problem(said, ("task",), f"write one of {', '.join(tasks)}", self.task)
        if self.predict_settings and not self.predict and self.kind == "llamafactory":
            yield Problem("is for the second step, which is off", ("predict_settings",), "set predict: true")
        if self.kind == "roll" and self.config is None:
            yield Problem("is missing", ("config",), "name the pipeline's YAML in the repository")
        if self.config and PurePosixPath(self.config).suffix not in (".yaml", ".yml"):
            yield Problem("is neither .yaml nor .yml", ("config",), "name the framework's YAML file", self.config)
        wanted = _STARTED_BY.get(self.kind)
        if wanted is not None and self.distributed and self.distributed.launcher not in wanted:
            mend = f"write {wanted[0]}" if wanted else "remove the section; Ray starts the processes"
            message = f"{self.kind} is not started by {self.distributed.launcher}"
            yield Problem(message, ("distributed", "launcher"), mend)


def is_python(word: str) -> bool:
    """Whether a command's first word is a Python interpreter."""
    return word == "{python}" or re.fullmatch(r"python[0-9.]*", PurePosixPath(word).name) is not None
