"""Prints, as JSON, the arguments a training framework takes. Run by the interpreter the framework is installed for.

`python argument_dump.py llamafactory` or `python argument_dump.py trl sft`; it imports nothing of nightlab.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import pathlib
import sys

MARK = "nightlab-arguments: "
"""Stands before the JSON: frameworks print when they are imported."""


# Beside this file stand modules that are called as the frameworks are.
sys.path = [folder for folder in sys.path if pathlib.Path(folder).resolve() != pathlib.Path(__file__).resolve().parent]


def _parser(framework: str, task: str) -> argparse.ArgumentParser:
    if framework == "trl":
        made = importlib.import_module(f"trl.scripts.{task}").make_parser()
        assert isinstance(made, argparse.ArgumentParser)
        return made
    known = importlib.import_module("llamafactory.hparams.parser")
    # With USE_MCA (Megatron) it takes others.
    arguments = getattr(known, "_TRAIN_MCA_ARGS", None) or known._TRAIN_ARGS
    parser = importlib.import_module("transformers").HfArgumentParser(arguments)
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


def _kind(action: argparse.Action) -> str:
    name = getattr(action.type, "__name__", "")
    if name == "string_to_bool" or isinstance(action, argparse._StoreTrueAction | argparse._StoreFalseAction):
        return "bool"
    return name if name in ("int", "float", "str") else "any"


def _argument(action: argparse.Action) -> dict[str, object]:
    found: dict[str, object] = {"type": _kind(action)}
    if action.choices:
        found["choices"] = [getattr(choice, "value", choice) for choice in action.choices]
    if action.nargs in ("+", "*"):
        found["many"] = True
    return found


def main(framework: str, task: str) -> None:
    actions = _parser(framework, task)._actions
    arguments = {
        action.dest: _argument(action)
        for action in actions
        if action.option_strings and not any(option.startswith(("-h", "--no_")) for option in action.option_strings)
    }
    if framework == "llamafactory":
        templates = importlib.import_module("llamafactory.data.template").TEMPLATES
        arguments["template"]["choices"] = sorted(templates)
    version = importlib.metadata.version(framework)
    sys.stdout.write(f"\n{MARK}{json.dumps({'version': version, 'arguments': arguments}, default=str)}\n")


if __name__ == "__main__":
    main(sys.argv[1], (sys.argv[2:] or ["sft"])[0])
