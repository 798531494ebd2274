"""What a code idea may not do, looked for in the code itself: each check returns its reasons, a cause and a sentence.

Heuristics by the syntax tree, before anything runs: they catch what a careless or a gaming model writes. What gets
past them meets the frozen evaluation, fresh seeds and the review.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import NamedTuple

import yaml

from nightlab.agents.edits import changed_lines
from nightlab.agents.gaming import gaming_faults
from nightlab.agents.python_code import (
    Module,
    binds,
    calls,
    imports,
    literal_texts,
    parsed,
    same_but_seeds,
    same_meaning,
)
from nightlab.configs.code import is_mutable, lies_below
from nightlab.configs.study import Study

__all__ = ["CHECKS", "Change", "Refusal", "check_change"]

NETWORK = frozenset(
    {
        *("socket", "ssl", "urllib", "urllib2", "urllib3", "http", "httpx", "requests", "aiohttp", "ftplib", "smtplib"),
        *("telnetlib", "paramiko", "websocket", "websockets", "grpc", "boto3", "xmlrpc"),
    }
)
PROCESSES = frozenset(
    {"subprocess", "multiprocessing", "pty", "ctypes", "cffi", "importlib", "runpy", "pickle", "marshal", "inspect"}
)
BUILDERS = frozenset({"exec", "eval", "compile", "__import__", "globals", "os.system", "os.popen", "os.fork"})
"""Calls by which code does what its text does not show."""
OWN_FILES = (".nightlab", "EXPERIMENT.md", "experiment.json", "RESULT.json", "run.json", "result.json", "NIGHTLAB_")
"""What the lab itself writes or sets."""
MOST_SHOWN = 80


class Refusal(NamedTuple):
    """Why an idea is not taken."""

    cause: str
    """In a word, for the record."""
    reason: str
    """A sentence, for the model and for people."""


@dataclass(frozen=True)
class Change:
    """The files that an idea changes, before and after."""

    study: Study
    before: Mapping[str, str | None]
    after: Mapping[str, str]

    @cached_property
    def python(self) -> dict[str, tuple[Module, Module]]:
        """The Python files among them, parsed; raises SyntaxError where one cannot be."""
        paths = [path for path in self.after if path.endswith(".py")]
        return {path: (parsed(self.before.get(path) or ""), ast.parse(self.after[path])) for path in paths}


def check_change(change: Change) -> list[Refusal]:
    """Every reason not to take it; of what makes further checks meaningless only the first."""
    try:
        return next((refusals for check in CHECKS if (refusals := check(change))), [])
    except RecursionError:
        return [Refusal("syntax", "is nested too deeply to be read")]


def check_places(change: Change) -> list[Refusal]:
    code, frozen = change.study.code, change.study.frozen
    found = []
    for path in change.after:
        if lies_below(path, frozen):
            found.append(Refusal("frozen", f"{path} is frozen: what measures may not be changed"))
        elif not is_mutable(code, frozen, path):
            found.append(Refusal("not-mutable", f"{path} may not be changed; mutable are {', '.join(code.mutable)}"))
    return found


def check_size(change: Change) -> list[Refusal]:
    lines, most = sum(changed_lines(change.before, change.after)), change.study.code.max_changed_lines
    if lines <= most:
        return []
    return [Refusal("too-large", f"changes {lines} lines; one idea may add and remove {most} together")]


def check_syntax(change: Change) -> list[Refusal]:
    return [Refusal("syntax", fault) for path, text in change.after.items() if (fault := _syntax_fault(path, text))]


def _syntax_fault(path: str, text: str) -> str | None:
    try:
        if path.endswith(".py"):
            compile(text, path, "exec", dont_inherit=True)
        elif path.endswith(".json"):
            json.loads(text)
        elif path.endswith((".yaml", ".yml")):
            yaml.safe_load(text)
    except SyntaxError as error:
        return f"{path}:{error.lineno}: {error.msg}"
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        return f"{path}: {' '.join(str(error).split())}"
    return None


def check_substance(change: Change) -> list[Refusal]:
    """It does something, and something else than another seed."""
    if all(_same(change, path) for path in change.after):
        return [
            Refusal("no-change", "differs in comments, docstrings and layout at most: nothing would run differently")
        ]
    if all(_same(change, path) or _same_but_seeds(change, path) for path in change.after):
        return [Refusal("seed-only", "changes nothing but seeds: luck is not an idea")]
    return []


def _same(change: Change, path: str) -> bool:
    before, after = change.before.get(path) or "", change.after[path]
    if path in change.python:
        return same_meaning(*change.python[path])
    if path.endswith((".json", ".yaml", ".yml")):
        return _syntax_fault(path, before) is None and bool(yaml.safe_load(before) == yaml.safe_load(after))
    return _bare(before) == _bare(after)


def _bare(text: str) -> list[str]:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("#", "//"))]


def _same_but_seeds(change: Change, path: str) -> bool:
    if path in change.python:
        return same_but_seeds(*change.python[path])
    seedless = [
        re.sub(r"(?i)(seed\w*\W{1,4})[-+\d.]+", r"\1", text or "")
        for text in (change.before.get(path), change.after[path])
    ]
    return _bare(seedless[0]) == _bare(seedless[1])


def check_required_calls(change: Change) -> list[Refusal]:
    """What measures is called as before, with the same arguments, and is what it was."""
    wanted = set(change.study.code.required_calls)
    found = []
    for path, (before, after) in change.python.items():
        for name in sorted(wanted):
            was, now = (sorted(text for called, text in calls(tree) if called == name) for tree in (before, after))
            if was and not now:
                found.append(Refusal("required-call", f"{path}: the call of {name} is gone; it must stay"))
            elif was != now:
                text = f"{path}: {name} must be called as before: {'; '.join(was) or 'not at all'}"
                found.append(Refusal("evaluation", text))
            meant, means = (
                {how: times for (of, how), times in binds(tree).items() if of == name} for tree in (before, after)
            )
            if meant != means:
                text = f"{path}: {name} is given another meaning; it measures, and must stay as it is"
                found.append(Refusal("evaluation", text))
    return found


def check_metric_output(change: Change) -> list[Refusal]:
    """The metrics are told as before: the same statements print them, from values that come about as before."""
    found = []
    for path, (before, after) in change.python.items():
        for metric in _metric_keys(change.study):
            told = [_telling(tree, metric) for tree in (before, after)]
            texts = [sorted(ast.unparse(node) for node in nodes) for nodes in told]
            if new := [node for node in told[1] if ast.unparse(node) not in texts[0]]:
                if any(_is_constant(node, metric) for node in new):
                    found.append(Refusal("metric", f"{path}: tells {metric} as a constant, not as it was measured"))
                else:
                    found.append(
                        Refusal("metric", f"{path}: what tells {metric} must stay as it is: {'; '.join(texts[0])}")
                    )
            elif texts[0] != texts[1]:
                found.append(
                    Refusal("metric", f"{path}: {metric} is not told any more as before: {'; '.join(texts[0])}")
                )
            else:
                found += _value_faults(change.study, path, before, after, told[0], metric)
    return found


def _metric_keys(study: Study) -> list[str]:
    return [study.source_of(name).key or name for name in study.metric_names]


def _telling(tree: Module, metric: str) -> list[ast.AST]:
    """The innermost calls and assignments into a key in which the metric is named."""
    pattern = re.compile(rf"(?<![\w]){re.escape(metric)}(?![\w])")
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call | ast.Dict | ast.Assign):
            keys = node.targets if isinstance(node, ast.Assign) else [node]
            if isinstance(node, ast.Assign) and not any(isinstance(key, ast.Subscript) for key in keys):
                continue
            if any(pattern.search(text) for key in keys for text in literal_texts(key)):
                found.append(node)
    return [node for node in found if not any(other is not node and node in ast.walk(other) for other in found)]


def _is_constant(node: ast.AST, metric: str) -> bool:
    """Whether a number stands where the metric's value belongs."""
    text = ast.unparse(node)
    if re.search(rf"{re.escape(metric)}[\"']?\s*[:=,\]]*\s*\{{?[-+]?\.?\d", text):
        return True
    values = [
        one for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, ast.Load)
    ]
    called = {id(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)}
    return all(id(one) in called for one in values)


def _value_faults(
    study: Study, path: str, before: Module, after: Module, telling: list[ast.AST], metric: str
) -> list[Refusal]:
    """Where what is told was measured by a required call, its value still comes from nothing else."""
    names = {node.id for one in telling for node in ast.walk(one) if isinstance(node, ast.Name)}
    found = []
    for name in sorted(names):
        ways = [
            {how: times for (bound, how), times in binds(tree).items() if bound == name} for tree in (before, after)
        ]
        measured = any(
            re.search(rf"\b{re.escape(call)}\(", how) for how in ways[0] for call in study.code.required_calls
        )
        if measured and ways[0] != ways[1]:
            text = f"{path}: {name}, which is told as {metric}, must come about as before: {'; '.join(ways[0])}"
            found.append(Refusal("metric", text))
    return found


def check_gaming(change: Change) -> list[Refusal]:
    """No metric that nobody measured, no training on what is measured on, no more steps, no way to earlier results."""
    found: list[Refusal] = []
    for path, (before, after) in change.python.items():
        told = {metric: _told_names(before, metric) for metric in _metric_keys(change.study)}
        found += [Refusal(*fault) for fault in gaming_faults(change.study, path, before, after, told)]
    return found


def _told_names(tree: Module, metric: str) -> set[str]:
    telling = _telling(tree, metric)
    return {node.id for one in telling for node in ast.walk(one) if isinstance(node, ast.Name)}


def check_reach(change: Change) -> list[Refusal]:
    """No new way to the network, to other processes, to the evaluation's or the lab's files, or out of the tree."""
    found = []
    for path, (before, after) in change.python.items():
        new = imports(after) - imports(before)
        modules = {module.split(".")[0] for module, _ in new}
        for name in sorted(modules & NETWORK):
            found.append(Refusal("network", f"{path}: imports {name}; no run reaches the network"))
        for name in sorted(modules & PROCESSES):
            found.append(Refusal("process", f"{path}: imports {name}; a run does what its own code says"))
        for module, name in sorted(new):
            if name and _is_frozen_module(change.study, module):
                text = f"{path}: imports {name} from {module}, which belongs to the evaluation"
                found.append(Refusal("evaluation", text))
        known = {text for _, text in calls(before)}
        hidden = {text for _, text in calls(after) if text.split("(")[0] in BUILDERS and text not in known}
        found += [Refusal("process", f"{path}: {text} hides what runs") for text in sorted(hidden)]
        texts = literal_texts(after) - literal_texts(before)
        found += [fault for text in texts if (fault := _place_fault(change.study, path, text))]
    return found


def _is_frozen_module(study: Study, module: str) -> bool:
    place = module.replace(".", "/")
    return any(lies_below(name, study.frozen) for name in (place, f"{place}.py", f"src/{place}.py"))


def _place_fault(study: Study, path: str, text: str) -> Refusal | None:
    shown = repr(text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…")
    if own := next((one for one in OWN_FILES if one in text), None):
        return Refusal("lab-files", f"{path}: names {own}, which is the lab's: {shown}")
    if re.search(r"\s", text):
        # Prose, a message: no place.
        return None
    for place in (*study.frozen, *(one.path for one in study.metrics.values() if one.path)):
        if _names_place(text, place):
            return Refusal("evaluation", f"{path}: names {place}, which belongs to the evaluation: {shown}")
    if re.match(r"(/|~/|[A-Za-z]:\\|[a-z+]+://).{3}", text) or re.search(r"(^|/)\.\.(/|$)", text):
        return Refusal("outside", f"{path}: names a place outside of its worktree: {shown}")
    return None


def _names_place(text: str, place: str) -> bool:
    """Whether a text is a path of `place` or in it; a bare word may be anything."""
    have, want = PurePosixPath(text).parts, PurePosixPath(place).parts
    if len(have) == 1 and "." not in text:
        return False
    return any(have[at : at + len(want)] == want for at in range(len(have)))


CHECKS: tuple[Callable[[Change], list[Refusal]], ...] = (
    check_places,
    check_size,
    check_syntax,
    check_substance,
    check_required_calls,
    check_metric_output,
    check_gaming,
    check_reach,
)
"""In their order: each may take for granted that those before it found nothing."""
