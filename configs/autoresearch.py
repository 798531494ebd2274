"""A repository in the shape of karpathy/autoresearch: one training script, a frozen one beside it, a program.

Nothing is executed: the scripts are read as syntax trees.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nightlab.configs.discovery import constants
from nightlab.configs.study import Scalar

__all__ = ["PARAMETER_FILE", "Autoresearch", "read_autoresearch"]

SCRIPT, FROZEN, PROGRAM = "train.py", "prepare.py", "program.md"
PARAMETER_FILE = "nightlab_params.json"
BUDGET = "TIME_BUDGET"
"""The frozen script's constant that says how many seconds a run trains."""
SPARE = 1.1
"""So many times its budget a run may train: what it takes to finish a step."""
_SEED = re.compile(r"[\"']SEED[\"']")


@dataclass(frozen=True)
class Autoresearch:
    """One such repository, as far as it is one."""

    has_script: bool = False
    has_frozen: bool = False
    has_program: bool = False
    takes_values: bool = False
    """Whether the training script reads the parameter file, so that the lab can set its constants."""
    takes_seed: bool = False
    """Whether it reads the variable SEED."""
    values: Mapping[str, Scalar] = field(default_factory=dict)
    """The constants that the lab can set, with their present values."""
    measures: tuple[str, ...] = ()
    """Functions of the frozen script that the training script calls and whose names say that they measure."""
    budget_seconds: float | None = None
    told: frozenset[str] = frozenset()
    """Metrics that the training script prints as `name: value`."""
    python: str = "{python}"
    inputs: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """What a person should know before the first night, a line each."""
        found = []
        if not self.has_script:
            found.append(f"there is no {SCRIPT} here; the study is an example")
            return found
        if not self.has_frozen:
            found.append(f"there is no {FROZEN}; name the code that measures under frozen")
        if not self.takes_seed:
            found.append(
                f"{SCRIPT} does not read SEED, so every run has the same seed and a win of luck is not found out; "
                "the study file says how to mend it"
            )
        if not self.takes_values:
            found.append(
                f"{SCRIPT} keeps its constants, so only a language model can change them; the study file says how the "
                "lab can set them without one"
            )
        return found


def read_autoresearch(root: Path) -> Autoresearch:
    """What stands in the folder `root`."""
    script, frozen = _text(root / SCRIPT), _text(root / FROZEN)
    tree, frozen_tree = _tree(script), _tree(frozen)
    takes_values = PARAMETER_FILE in script
    budget = constants(root, FROZEN).get(BUDGET)
    imported = set(_imported(tree))
    values: dict[str, Scalar] = {}
    if takes_values:
        values = constants(root, SCRIPT, above=PARAMETER_FILE)
        # What the script imports by name it can be told as well.
        values |= {BUDGET: budget} if budget is not None and BUDGET in imported else {}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    made = {node.name for node in frozen_tree.body if isinstance(node, ast.FunctionDef)}
    python = ".venv/bin/python"
    has_own = (root / python).exists()
    return Autoresearch(
        has_script=bool(script),
        has_frozen=(root / FROZEN).is_file(),
        has_program=(root / PROGRAM).is_file(),
        takes_values=takes_values,
        takes_seed=_SEED.search(script) is not None,
        values=values,
        measures=tuple(sorted(name for name in made & called & imported if name.startswith("eval"))),
        budget_seconds=float(budget) if isinstance(budget, int | float) else None,
        told=frozenset(re.findall(r"[\"']([A-Za-z_]\w*):\s", script)),
        python=python if has_own else "{python}",
        inputs=(".venv",) if has_own else (),
    )


def _imported(tree: ast.Module) -> Iterator[str]:
    """Names that the script takes from the frozen one under their own name."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == Path(FROZEN).stem:
            yield from (alias.name for alias in node.names if alias.asname is None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return ""


def _tree(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])
