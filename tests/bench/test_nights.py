"""The nights with real frameworks: their studies are sound, as far as that can be told without the frameworks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.nights import runner
from nightlab.configs.loading import load_study
from nightlab.tools.launchers import launcher_for
from nightlab.tools.launchers.faults import launcher_faults

NIGHTS = sorted(path for path in runner.HERE.glob("*/study*.yaml"))


@pytest.mark.parametrize("path", NIGHTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_nights_study_is_sound(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for name in ("{env}", "{bin}", "{here}"):
        text = text.replace(name, str(tmp_path / "no-such-environment"))
    (tmp_path / "study.yaml").write_text(text, encoding="utf-8")
    study = load_study(tmp_path / "study.yaml").study
    assert launcher_faults(study, launcher_for(study), path.parent) == []
    folders = [path.parent, *(runner.HERE / base for night, base in runner.BASE.items() if night == path.parent.name)]
    made = ("data", "model")
    for file in [*study.frozen, *study.inputs]:
        assert file in made or any((folder / file).is_file() for folder in folders), file


def test_held_out_queries_are_not_in_the_training_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "make_data"}
    source = (runner.HERE / "tiny" / "make_data.py").read_text(encoding="utf-8")
    exec(compile(source, "make_data.py", "exec"), namespace)  # noqa: S102
    main = namespace["main"]
    assert callable(main)
    main()
    asked = {name: {row["input"] for row in _rows(f"data/{name}.json")} for name in ("train", "test", "pairs_train")}
    assert len(asked["test"]) == 60
    assert not asked["test"] & (asked["train"] | asked["pairs_train"])


def _rows(path: str) -> list[dict[str, str]]:
    rows = json.loads(Path(path).read_text(encoding="utf-8"))
    assert isinstance(rows, list)
    return rows
