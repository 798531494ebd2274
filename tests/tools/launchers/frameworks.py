"""Studies of training frameworks, and a stand-in for one that is installed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from nightlab.configs.study import Scalar, Study
from nightlab.tools.launchers import launcher_for
from nightlab.tools.launchers.framework import FrameworkLauncher

__all__ = ["framework", "install", "study", "write"]


def study(
    kind: str,
    parameters: Mapping[str, Scalar],
    *,
    space: Mapping[str, Any] | None = None,
    backend: Mapping[str, Any] | None = None,
    catalog: Mapping[str, Any] | None = None,
    **launcher: Any,
) -> Study:
    return Study.model_validate(
        {
            "study": "s",
            "scenario": "s",
            "method": "sft-lora",
            "base_model": "tiny",
            "objective": {"metric": "loss", "direction": "minimize", "min_effect": 0.1},
            "parameters": dict(parameters),
            "space": dict(space or {}),
            "backend": dict(backend or {}),
            "catalog": dict(catalog or {}),
            "launcher": {"kind": kind, **launcher},
            "budget": {"runs": 3},
        }
    )


def framework(the_study: Study) -> FrameworkLauncher:
    launcher = launcher_for(the_study)
    assert isinstance(launcher, FrameworkLauncher)
    return launcher


def write(tree: Path, name: str, document: Mapping[str, Any]) -> None:
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(yaml.safe_dump(dict(document)), encoding="utf-8")


def install(folder: Path, *, fault: str = "") -> tuple[Path, dict[str, str]]:
    """A `llamafactory-cli` whose interpreter finds a llamafactory 9.9 with few arguments, and the jobs' environment.

    Every import of it adds a line to `imports` in `folder`.
    """
    package = folder / "lib" / "llamafactory"
    (package / "hparams").mkdir(parents=True)
    (package / "data").mkdir()
    for init in (package, package / "hparams", package / "data"):
        (init / "__init__.py").write_text("", encoding="utf-8")
    log = f"with open({str(folder / 'imports')!r}, 'a') as file:\n    print('imported', file=file)\n"
    (package / "hparams" / "parser.py").write_text(f"{log}{fault}\n_TRAIN_ARGS = []\n", encoding="utf-8")
    (package / "data" / "template.py").write_text("TEMPLATES = {'qwen': 1, 'llama3': 2}\n", encoding="utf-8")
    (folder / "lib" / "transformers.py").write_text(_TRANSFORMERS, encoding="utf-8")
    metadata = folder / "lib" / "llamafactory-9.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: llamafactory\nVersion: 9.9\n", encoding="utf-8")
    program = folder / "bin" / "llamafactory-cli"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n", encoding="utf-8")
    program.chmod(0o755)
    return program, {"PYTHONPATH": str(folder / "lib")}


_TRANSFORMERS = """
import argparse
print("a framework says something when it is imported")

def string_to_bool(text): ...

def HfArgumentParser(dataclasses):
    parser = argparse.ArgumentParser()
    for name in ("model_name_or_path", "dataset", "report_to", "template"):
        parser.add_argument(f"--{name}", type=str)
    parser.add_argument("--stage", choices=["sft", "dpo"])
    parser.add_argument("--learning_rate", type=float)
    parser.add_argument("--brand_new", type=int)
    for name in ("do_train", "plot_loss", "do_sample"):
        parser.add_argument(f"--{name}", f"--{name.replace('_', '-')}", type=string_to_bool)
    parser.add_argument("--no_do_train", action="store_false", dest="do_train")
    parser.add_argument("--logging_steps", type=float)
    return parser
"""
