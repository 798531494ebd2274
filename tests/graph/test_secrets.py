"""A whole night in which runs print secrets everywhere they can: afterwards they stand nowhere the lab has written."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from langgraph.graph import START, StateGraph

from nightlab.agents.context import Lab
from nightlab.configs.loading import load_study
from nightlab.configs.paths import StudyPaths
from nightlab.errors import ConfigError
from nightlab.graph.checkpoints import open_checkpoints
from nightlab.graph.opening import locate
from nightlab.graph.state import LabState
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.lessons import append, lesson_id, read
from nightlab.knowledge.records import Question, RunState, StudyStatus
from nightlab.night import check, run_night
from nightlab.report.write import write_files
from nightlab.tools.redaction import Redactor, redactor_for
from tests.task import TRAIN, commit_all, git, make_repository, study_data, write_study

PASSED = "pa/ss+ed?6f1e&8c"
LITERAL = "li/ter=al 77b?03d"
WITHHELD = "with+held/90ab12"
LEAK = """\
import base64, os, sys, urllib.parse

output = os.environ["NIGHTLAB_OUTPUT_DIR"]
secrets = [os.environ["TRAIN_TOKEN"], open(os.environ["ELSEWHERE"]).read()]
with open(os.path.join(output, "environment"), "w") as file:
    file.write("\\n".join(os.environ))
for secret in secrets:
    for form in (secret, base64.b64encode(secret.encode()).decode(), urllib.parse.quote(secret, safe="")):
        print("login with", form)
        print("login with", form, file=sys.stderr)
        with open(os.path.join(output, "own"), "a") as file:
            file.write(form)
"""
CRASH = 'if p["crash"] == "yes":\n    raise RuntimeError("cannot log in: " + "x" * 255 + " ".join(secrets))\n'


def forms(secret: str) -> list[bytes]:
    return [secret.encode(), base64.b64encode(secret.encode()), quote(secret, safe="").encode()]


SPELLED = [form for secret in (PASSED, LITERAL, WITHHELD) for form in (*forms(secret), secret[:9].encode())]
"""Half a secret, cut off at the end of an excerpt, counts too."""


def quiet(_: str) -> None:
    return None


def leaking_repository(folder: Path, **changes: Any) -> Path:
    """The task with a training script that tells its secrets; the literal one stands in a study file git lacks."""
    backend = study_data()["backend"] | {"pass_env": ["TRAIN_TOKEN", "ELSEWHERE"]}
    file = make_repository(folder, backend=backend, **changes)
    crash = 'if p["crash"] == "yes":\n    sys.exit("boom: out of luck")\n'
    assert crash in TRAIN
    (folder / "train.py").write_text(LEAK + TRAIN.replace(crash, CRASH))
    commit_all(folder, "a careless script")
    return write_study(folder, backend=backend, secrets=[LITERAL], **changes) if "secrets" not in changes else file


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "elsewhere").write_text(LITERAL)
    file = leaking_repository(folder / "repo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAIN_TOKEN", PASSED)
        patch.setenv("ELSEWHERE", str(folder / "elsewhere"))
        patch.setenv("LAB_API_KEY", WITHHELD)
        with pytest.raises(RuntimeError) as broken:
            run_night(file, say=quiet, watch=break_at_the_end)
        assert redactor_for(broken.value).redact(LITERAL) == "[redacted]"
        assert run_night(file, say=quiet).status is StudyStatus.FINISHED
    return file


def break_at_the_end(lab: Lab) -> None:
    """An agent that writes a secret into a document, and an error with one in the last step of the graph."""

    def broken() -> None:
        raise RuntimeError(f"cannot reach {LITERAL}")

    lab.write_document(lab.paths.folder / "document.md", f"it said {PASSED}")
    lab.write_reports = broken


def paths_of(file: Path) -> StudyPaths:
    return locate(load_study(file)).paths


def test_nothing_the_lab_has_written_holds_a_secret(night: Path) -> None:
    paths = paths_of(night)
    written = [path for path in paths.runtime.rglob("*") if path.is_file() and "output" not in path.parts]
    for needed in (paths.ledger, paths.checkpoints, paths.card, paths.lessons, paths.results_csv):
        assert needed in written
    assert {path.suffix for path in written} >= {".html", ".md", ".csv", ".jsonl", ".sqlite", ".log", ".json"}
    holding = [str(path) for path in written for form in SPELLED if form in path.read_bytes()]
    assert not holding


def test_nothing_in_git_holds_a_secret(night: Path) -> None:
    told = subprocess.run(["git", "log", "-p", "--all"], cwd=night.parent, capture_output=True, check=True).stdout
    assert b"RESULT.json" in told
    objects = git(night.parent, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    content = b"".join(
        subprocess.run(["git", "cat-file", "-p", name], cwd=night.parent, capture_output=True, check=True).stdout
        for name in objects
    )
    assert not [form for form in SPELLED if form in told or form in content]


def test_logs_and_failures_say_what_was_taken_out_and_metrics_are_read(night: Path) -> None:
    paths = paths_of(night)
    with Ledger.open(paths.ledger) as ledger:
        states = [run.state for run in ledger.runs()]
        assert states.count(RunState.REVIEWED) >= 10
        failed = [run for run in ledger.runs() if run.state is RunState.FAILED]
        assert failed and all("cannot log in" in run.detail for run in failed)
        (entry,) = ledger.study_row().study.secrets
        assert entry == "[redacted]"
    for job in paths.jobs:
        assert "login with [redacted:TRAIN_TOKEN]\n" in job.stdout.read_text()
        assert job.stderr.read_text().count("[redacted") >= 6


def test_a_job_sees_only_the_keys_it_was_given_and_its_own_files_are_left_alone(night: Path) -> None:
    for job in paths_of(night).jobs:
        seen = (job.output / "environment").read_text().split()
        assert "TRAIN_TOKEN" in seen and "LAB_API_KEY" not in seen
        assert PASSED in (job.output / "own").read_text()


def test_a_study_goes_on_whose_ledger_holds_its_secrets_redacted(night: Path) -> None:
    assert run_night(night, say=quiet).already_finished
    with Ledger.open(paths_of(night).ledger) as ledger:
        assert not [event for event in ledger.events() if event.kind == "changed"]


def test_what_is_shown_of_an_error_holds_no_secret(night: Path) -> None:
    broken = (
        "import sys\nfrom nightlab.cli import app, reading\n"
        "import nightlab.report.write\n"
        f"def breaks(*_, **__): raise {{}}('cannot reach ' + {LITERAL!r})\n"
        "nightlab.report.write.write_files = breaks\n"
        f"sys.argv = ['nightlab', 'report', '--study', {str(night)!r}]\n"
        "app.main()\n"
    )
    for kind, status, last in (("ValueError", 1, "logs"), ("app.NightlabError", 2, "cannot reach [redacted]")):
        code = broken.format(kind)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"K": "v"})
        assert done.returncode == status
        assert LITERAL not in done.stderr and "cannot reach [redacted]" in done.stderr
        assert done.stderr.splitlines()[-1].startswith("nightlab: ") and last in done.stderr.splitlines()[-1]


def faults_of(file: Path, *, snapshot: bool = False) -> str:
    loaded = load_study(file)
    with pytest.raises(ConfigError) as refused:
        check(loaded, locate(loaded), allow_dirty=snapshot, say=quiet)
    return str(refused.value)


def test_a_secret_among_the_parameters_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAIN_TOKEN", PASSED)
    parameters = study_data()["parameters"] | {"color": PASSED, "steps": 123456}
    file = make_repository(tmp_path / "repo", parameters=parameters, secrets=["123456", "env:TRAIN_TOKEN", "short"])
    told = faults_of(file)
    assert "parameters.color: holds a secret: [redacted:TRAIN_TOKEN] (name its variable in backend.pass_env" in told
    assert "parameters.steps: holds a secret" in told
    assert "secrets.2: the value is shorter than 6 characters" in told
    assert PASSED not in told


def test_a_dry_run_that_prints_a_secret_is_told_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").write_text(LITERAL)
    monkeypatch.setenv("TRAIN_TOKEN", PASSED)
    monkeypatch.setenv("ELSEWHERE", str(tmp_path / "elsewhere"))
    launcher = study_data()["launcher"] | {"dry_run": {"crash": "yes"}}
    told = faults_of(leaking_repository(tmp_path / "repo", launcher=launcher))
    assert "cannot log in" in told
    assert not any(secret[:8] in told for secret in (PASSED, LITERAL))


def test_a_snapshot_does_not_take_secrets_into_git(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo")
    write_study(file.parent, secrets=[LITERAL])
    assert "--snapshot would commit" in faults_of(file, snapshot=True)
    assert not git(file.parent, "for-each-ref", "refs/nightlab")


def test_a_lesson_that_quotes_a_secret_is_written_without_it(night: Path, tmp_path: Path) -> None:
    lesson = read(paths_of(night).lessons).lessons[0].model_copy(update={"author": f"me {PASSED}"})
    append(tmp_path / "lessons", lesson, redact=Redactor([("TOKEN", PASSED)]).redact_data)
    (written,) = read(tmp_path / "lessons").lessons
    assert written.author == "me [redacted:TOKEN]"
    assert written.id == lesson_id(written) != lesson.id


def test_the_ledger_writes_free_text_without_secrets(night: Path, tmp_path: Path) -> None:
    copy = tmp_path / "ledger.sqlite"
    shutil.copyfile(paths_of(night).ledger, copy)
    told = f"it said {PASSED}"
    with Ledger.open(copy, redact=Redactor([("TOKEN", PASSED)]).redact_data) as ledger:
        ledger.add_event("said", told)
        ledger.update_run(ledger.runs()[0].key, detail=told)
        number, verdict = next(iter(ledger.verdicts().items()))
        for _ in range(2):
            ledger.record_verdict(verdict.model_copy(update={"reason": told}))
        asked = Question(id="q", study="tiny", kind="any", text=told, options=["yes"], default="yes", evidence=told)
        assert ledger.ask(asked) == ledger.question("q")
        assert ledger.events()[-1].text == ledger.runs()[0].detail == "it said [redacted:TOKEN]"
        reasons = [verdict.reason for verdict in ledger.verdict_history(number)]
        assert reasons.count("it said [redacted:TOKEN]") == 1
    assert PASSED.encode() not in copy.read_bytes()


def test_checkpoints_keep_no_errors(tmp_path: Path) -> None:
    def breaks(state: LabState) -> LabState:
        raise RuntimeError(f"cannot reach {PASSED}")

    graph = StateGraph(LabState).add_node("breaks", breaks).add_edge(START, "breaks")
    with open_checkpoints(tmp_path / "checkpoints.sqlite") as saver:
        compiled = graph.compile(checkpointer=saver)
        with pytest.raises(RuntimeError):
            compiled.invoke({"study": "tiny"}, {"configurable": {"thread_id": "tiny"}}, durability="sync")
    assert PASSED.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_a_report_of_records_that_hold_a_secret_is_written_without_it(night: Path, tmp_path: Path) -> None:
    paths = StudyPaths(tmp_path, "tiny")
    paths.folder.mkdir(parents=True)
    shutil.copyfile(paths_of(night).ledger, paths.ledger)
    with Ledger.open(paths.ledger) as ledger:
        for number in ledger.verdicts():
            ledger.record_verdict(ledger.verdicts()[number].model_copy(update={"reason": f"for {PASSED}"}))
        study = ledger.study_row().study
        for file in write_files(ledger, study, paths, Redactor([("TOKEN", PASSED)])):
            assert PASSED.encode() not in file.read_bytes()
        assert "for [redacted:TOKEN]" in paths.results_csv.read_text()
