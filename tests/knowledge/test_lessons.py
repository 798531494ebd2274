"""The lessons file survives being cut anywhere, merged by anyone and written by several processes at once."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nightlab.configs.study import Scalar, Study
from nightlab.errors import LedgerError
from nightlab.knowledge.lessons import append, current, lesson_id, make_lesson, merge, read
from nightlab.knowledge.records import Effect, Experiment, Lesson, Phase, Verdict, VerdictKind

START = datetime(2026, 11, 29, 22, 0, tzinfo=UTC)


def lesson(
    level: Scalar = 0.003, *, verdict: VerdictKind = VerdictKind.KEEP, delta: float | None = 0.02, **fields: Any
) -> Lesson:
    effect = None if delta is None else Effect(delta=delta, unit="bits/byte", runs=3, baseline_runs=3)
    values: dict[str, Any] = {
        "id": "",
        "time": START,
        "study": "night",
        "scenario": "pydoc",
        "base_model": "scratch",
        "method": "pretrain",
        "parameters": {"lr": level},
        "metric": "val_bpb",
        "effect": effect,
        "verdict": verdict,
        "label": "größer ist besser 大",
        "evidence": {"branch": "experiment-01", "commit": "c0ffee"},
        **fields,
    }
    made = Lesson(**values)
    return made.model_copy(update={"id": lesson_id(made)})


LESSONS = [lesson(level) for level in (0.003, 0.01, "cosine\nwith a line end", True)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lessons.jsonl"


def write(path: Path, lessons: list[Lesson]) -> bytes:
    for one in lessons:
        assert append(path, one)
    return path.read_bytes()


def test_an_absent_file_holds_no_lessons(path: Path) -> None:
    assert read(path).lessons == ()


def test_lessons_come_back_in_order_one_a_line(path: Path) -> None:
    content = write(path, LESSONS)
    held = read(path)
    assert (held.lessons, held.skipped, held.torn) == (tuple(LESSONS), 0, False)
    assert [list(json.loads(line)) for line in content.splitlines()] == [sorted(Lesson.model_fields)] * len(LESSONS)
    assert "größer ist besser 大" in content.decode()
    assert list(path.parent.iterdir()) == [path]


def test_a_lesson_is_written_once_whenever_it_is_learnt(path: Path) -> None:
    assert append(path, LESSONS[0])
    assert not append(path, LESSONS[0])
    later = lesson(time=START + timedelta(days=1))
    assert later.id == LESSONS[0].id
    assert not append(path, later)
    assert append(path, lesson(delta=0.03))
    assert len(read(path).lessons) == 2


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_cut_at_any_byte_keeps_every_complete_line(path: Path, data: st.DataObject) -> None:
    path.unlink(missing_ok=True)
    content = write(path, LESSONS[:3])
    cut = data.draw(st.integers(0, len(content)), label="cut")
    check_cut(path, content, cut)


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_a_file_cut_beside_a_line_end_keeps_every_complete_line(path: Path, offset: int) -> None:
    content = write(path, LESSONS[:3])
    for end in [i for i, byte in enumerate(content) if byte == ord("\n")]:
        check_cut(path, content, min(end + 1 + offset, len(content)))


def check_cut(path: Path, content: bytes, cut: int) -> None:
    path.write_bytes(content[:cut])
    # A lesson whose line lacks nothing but its end is complete.
    complete = [one for i, one in enumerate(LESSONS[:3]) if cut >= len(b"\n".join(content.split(b"\n")[: i + 1]))]
    held = read(path)
    assert held.lessons == tuple(complete)
    assert held.skipped == 0
    assert held.torn == (cut > 0 and content[:cut] not in whole_prefixes(content))
    assert append(path, LESSONS[3])
    assert read(path).lessons == (*complete, LESSONS[3])
    assert not read(path).torn
    assert path.read_bytes().count(b"\n") == len(complete) + 1


def whole_prefixes(content: bytes) -> set[bytes]:
    lines = content.splitlines(keepends=True)
    ends = {b"".join(lines[:i]) for i in range(len(lines) + 1)}
    return ends | {end.removesuffix(b"\n") for end in ends}


@given(st.binary(max_size=300))
@example(b"\xff\xfe\n{}\n\n")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rubbish_between_lessons_is_skipped(path: Path, rubbish: bytes) -> None:
    path.unlink(missing_ok=True)
    write(path, LESSONS[:1])
    path.write_bytes(path.read_bytes() + rubbish + b"\n")
    append(path, LESSONS[1])
    held = read(path)
    assert held.lessons == tuple(LESSONS[:2])
    assert held.skipped == sum(bool(line.strip()) for line in rubbish.split(b"\n"))


def test_a_line_repeated_by_a_merge_counts_once(path: Path) -> None:
    content = write(path, LESSONS[:2])
    path.write_bytes(content + content)
    assert read(path).lessons == tuple(LESSONS[:2])


def test_files_are_merged_by_union(tmp_path: Path) -> None:
    ours, theirs, both = (tmp_path / name for name in ("ours.jsonl", "theirs.jsonl", "new/both.jsonl"))
    write(ours, LESSONS[:2])
    write(theirs, LESSONS[1:])
    assert merge([ours, theirs, tmp_path / "absent.jsonl"], both) == 4
    assert {one.id for one in read(both).lessons} == {one.id for one in LESSONS}
    assert merge([theirs, ours, both], both) == 0
    assert merge([theirs], ours) == 2


def test_superseded_lessons_are_not_current() -> None:
    old = lesson(verdict=VerdictKind.INCONCLUSIVE)
    new = lesson(supersedes=[old.id])
    newest = lesson(delta=0.01, supersedes=[new.id])
    assert current([newest, old, LESSONS[1], new]) == [newest, LESSONS[1]]


def test_processes_appending_at_once_glue_nothing(path: Path) -> None:
    code = """
import sys
from pathlib import Path
from nightlab.knowledge.lessons import append
from nightlab.knowledge.records import Lesson
base = Lesson.model_validate_json(sys.argv[2])
for i in range(20):
    append(Path(sys.argv[1]), base.model_copy(update={"id": f"{sys.argv[3]}-{i}"}))
"""
    command = [sys.executable, "-c", code, str(path), LESSONS[0].model_dump_json()]
    writers = [subprocess.Popen([*command, name]) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    held = read(path)
    assert (len(held.lessons), held.skipped, held.torn) == (40, 0, False)


def test_what_cannot_be_read_or_written_is_named(tmp_path: Path, path: Path) -> None:
    with pytest.raises(LedgerError, match="lessons cannot be read"):
        read(tmp_path)
    with pytest.raises(LedgerError, match="lessons cannot be written"):
        append(tmp_path, LESSONS[0])
    with pytest.raises(LedgerError, match="not finite"):
        append(path, lesson(delta=float("nan")))
    assert not path.exists()


def test_a_lesson_is_made_from_what_the_ledger_holds(study: Study) -> None:
    experiment = Experiment(
        study="night",
        number=4,
        scenario="pydoc",
        method="pretrain",
        base_model="scratch",
        variable="lr-0-003",
        technique="lr",
        parameters={"lr": 0.003, "width": 64},
        changed={"lr": 0.003},
        phase=Phase.SCREEN,
        reason="tier 1",
        branch="experiment-04-pydoc-pretrain-lr-0-003",
        base_commit="c0ffee",
        commit="decade",
    )
    verdict = Verdict(number=4, kind=VerdictKind.KEEP, basis=Phase.CONFIRM, label="confirmed", reason="beyond noise")
    made = make_lesson(study, experiment, verdict, supersedes=["0" * 16], now=START)
    assert (made.parameters, made.baseline, made.technique) == ({"lr": 0.003}, {"lr": 0.001}, "lr")
    assert (made.metric, made.verdict, made.label, made.scope) == ("val_bpb", "keep", "confirmed", "pydoc/pretrain")
    assert made.evidence == {"experiment": "04", "branch": experiment.branch, "commit": "decade"}
    assert made.id == lesson_id(made) == make_lesson(study, experiment, verdict, supersedes=["0" * 16]).id
    assert len(made.id) == 16


def test_a_full_disk_leaves_no_half_line(path: Path) -> None:
    content = write(path, LESSONS[:1])
    code = """
import resource, sys
from pathlib import Path
from nightlab.errors import DiskError
from nightlab.knowledge.lessons import append
from nightlab.knowledge.records import Lesson
path, lesson = Path(sys.argv[1]), Lesson.model_validate_json(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, resource.RLIM_INFINITY))
try:
    append(path, lesson)
except DiskError as error:
    sys.exit(str(error))
"""
    command = [sys.executable, "-c", code, str(path), LESSONS[1].model_dump_json()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.startswith(f"{path}: cannot be written: File too large (")
    assert path.read_bytes() == content
