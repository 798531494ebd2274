"""What an idea may not do is seen in its code; what a researcher would do is let through."""

from __future__ import annotations

from typing import Any

import pytest

from nightlab.agents.code_checks import Change, check_change
from nightlab.agents.edits import edited
from nightlab.configs.study import Study
from nightlab.knowledge.records import Edit
from tests.code_task import EVALUATION, TRAIN, code_study

FILES = {"train.py": TRAIN, "evaluation.py": EVALUATION, "conf.yaml": "seed: 1\nlr: 2\n"}
PRINT = 'print(f"val_loss: {val_loss:.6f}")'
FEATURES = "    return [1.0, x]\n"
IMPORTS = "import json, os, random, sys\n"


def study(**code: Any) -> Study:
    data = code_study("http://127.0.0.1:9/v1")
    data["code"] |= {"mutable": ["train.py", "conf.yaml", "models/*.py"], **code}
    return Study.model_validate(data)


def causes(*edits: tuple[str, str], path: str = "train.py", **code: Any) -> set[str]:
    after = edited(FILES.get, [Edit(path=path, search=search, replace=replace) for search, replace in edits])
    change = Change(study(**code), {name: FILES.get(name) for name in after}, after)
    return {refusal.cause for refusal in check_change(change)}


@pytest.mark.parametrize(
    "edits",
    [
        [(FEATURES, "    return [1.0, x, x * x]\n")],
        [(FEATURES, "    import math\n    return [1.0, x, math.sin(x)]\n")],
        [("    error = clipped(error)\n", "")],
        [("random.uniform(-1, 1)", "random.triangular(-1, 1)")],
        [(PRINT, f'print("training is over")\n{PRINT}')],
        [(IMPORTS, f"{IMPORTS}import re\nWORDS = re.compile('[a-z]+')\n"), (FEATURES, "    return [1.0, x, 2 * x]\n")],
        [(FEATURES, '    """An evaluation of /etc/passwd in evaluation.py."""\n    return [1.0, 2 * x]\n')],
    ],
)
def test_honest_changes_pass(edits: list[tuple[str, str]]) -> None:
    assert causes(*edits) == set()


def test_code_that_cannot_be_read_is_refused_and_never_a_crash() -> None:
    assert causes((FEATURES, f"    return [1.0, x, {'-' * 5000}x]\n")) == {"syntax"}
    assert causes((FEATURES, "    return [1.0, '\0']\n")) == {"syntax"}
    old = Change(study(), {"train.py": "print 'val_loss: 1'\n"}, {"train.py": "print(2)\n"})
    assert check_change(old) == []


def test_only_mutable_files_and_never_frozen_ones() -> None:
    assert causes(("range(41)", "range(3)"), path="evaluation.py") == {"frozen"}
    assert causes(("", "x = 1\n"), path="other.py") == {"not-mutable"}
    assert causes(("", "x = 1\n"), path="models/deep/net.py") == {"not-mutable"}
    assert causes(("", "def forward(x):\n    return x\n"), path="models/net.py") == set()
    assert causes(("range(41)", "range(3)"), path="evaluation.py", mutable=["*.py"]) == {"frozen"}


def test_one_idea_is_small() -> None:
    assert causes((FEATURES, FEATURES + "    x = 1\n" * 40)) == {"too-large"}


def test_what_is_no_code_is_refused() -> None:
    assert causes((FEATURES, "    return [1.0, x\n")) == {"syntax"}
    assert causes((FEATURES, FEATURES + "return 1\n")) == {"syntax"}
    assert causes(("lr: 2", "lr: [2"), path="conf.yaml") == {"syntax"}


@pytest.mark.parametrize(
    "edits",
    [
        [(FEATURES, "    # better\n    return [1.0,\n        x]\n")],
        [("def features(x):\n", 'def features(x):\n    """Features."""\n    pass\n')],
        [("# Nothing is ever as large as that.", "# Clipped.")],
    ],
)
def test_comments_docstrings_and_layout_are_no_idea(edits: list[tuple[str, str]]) -> None:
    assert causes(*edits) == {"no-change"}


@pytest.mark.parametrize(
    "edits",
    [
        [("random.seed(seed)", "random.seed(seed + 7)")],
        [("random.seed(seed)", "random.seed(1234)")],
        [('seed = int(options["--seed"])', 'seed = 3 + int(options["--seed"])')],
    ],
)
def test_another_seed_is_no_idea(edits: list[tuple[str, str]]) -> None:
    assert causes(*edits) == {"seed-only"}


def test_another_seed_in_a_data_file_is_no_idea() -> None:
    assert causes(("seed: 1", "seed: 9"), path="conf.yaml") == {"seed-only"}


@pytest.mark.parametrize(
    ("edits", "cause"),
    [
        # The metric as a constant, beside the measured one, scaled, or from another source.
        ([(PRINT, 'print("val_loss: 0.01")')], "metric"),
        ([(PRINT, 'print("val_loss:", 0.01)')], "metric"),
        ([(PRINT, f'{PRINT}\nprint(f"val_loss: {{1e-3}}")')], "metric"),
        ([(PRINT, 'print(f"val_loss: {val_loss / 2:.6f}")')], "metric"),
        ([(PRINT, 'print(f"val_loss: {min(val_loss, 0.1):.6f}")')], "metric"),
        ([(PRINT, f"val_loss = 0.01\n{PRINT}")], "metric"),
        ([(PRINT, f"val_loss *= 0.5\n{PRINT}")], "metric"),
        ([(PRINT, "pass")], "metric"),
        # Evaluation left out, on less, or redefined.
        ([("val_loss = evaluate(lambda", "val_loss = abs(lambda")], "required-call"),
        ([("evaluate(lambda x: sum(", "evaluate(lambda x: 0.5 * sum(")], "evaluation"),
        ([(FEATURES, f"{FEATURES}\n\ndef evaluate(predict):\n    return 0.0\n")], "evaluation"),
        (
            [("from evaluation import evaluate, target", "from evaluation import evaluate, target, POINTS")],
            "evaluation",
        ),
        ([(FEATURES, "    return [1.0, x, len(open('evaluation.py').read())]\n")], "evaluation"),
        # What is the lab's, what is outside, what hides.
        ([(FEATURES, "    return [1.0, x, len(os.listdir('.nightlab'))]\n")], "lab-files"),
        ([(FEATURES, "    return [1.0, x, os.environ.get('NIGHTLAB_SEED')]\n")], "lab-files"),
        ([(FEATURES, "    open('/tmp/known', 'a').write('x')\n    return [1.0, x]\n")], "outside"),
        ([(FEATURES, "    open('../known', 'a').write('x')\n    return [1.0, x]\n")], "outside"),
        ([(FEATURES, "    import urllib.request\n    return [1.0, x]\n")], "network"),
        ([(FEATURES, "    from subprocess import run\n    return [1.0, x]\n")], "process"),
        ([(FEATURES, "    exec('x = 2')\n    return [1.0, x]\n")], "process"),
        ([(FEATURES, "    os.system('true')\n    return [1.0, x]\n")], "process"),
    ],
)
def test_cheats_are_named(edits: list[tuple[str, str]], cause: str) -> None:
    assert cause in causes(*edits)


def test_calls_of_the_same_name_on_a_model_are_no_cheats() -> None:
    body = "    model = torch.compile(model)\n    model.eval()\n    return [1.0, x]\n"
    assert causes((FEATURES, body)) == set()
