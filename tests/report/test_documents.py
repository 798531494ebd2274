"""The files: facts, escaping, no network, determinism."""

from __future__ import annotations

import csv
import json
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nightlab.configs.files import write_atomically
from nightlab.configs.study import Scalar
from nightlab.knowledge.records import Effect, Phase, VerdictKind
from nightlab.report.csv import COLUMNS, write_csv, write_tsv
from nightlab.report.html import render_html, write_html
from nightlab.report.markdown import escape_markdown, render_markdown, write_markdown
from nightlab.report.model import StudyReport
from tests.report import night as nights
from tests.report.night import Night

VOID = {"meta", "link", "br", "img", "path", "use", "rect"}
EVIL = "<script>alert(1)</script> | `x` **b** [l](http://evil.example/) $a_b$ \x1b[31m=cmd()"


class Page(HTMLParser):
    """Collects tags, addresses, text and tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.mismatches: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self._note(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._note(attrs)

    def _note(self, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.addresses += [values[name] or "" for name in ("src", "href", "xlink:href", "action") if name in values]
        if values.get("id"):
            self.ids.append(values["id"] or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.mismatches.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data


NIGHTS: dict[str, Callable[[], Night]] = {
    "empty": Night,
    "baseline": nights.baseline_only,
    "failed": nights.all_failed,
    "screened": nights.screened,
    "won": nights.won,
    "long": lambda: nights.long_night(60),
}


@pytest.mark.parametrize("name", NIGHTS)
def test_every_kind_of_night_is_a_sound_page_that_fetches_nothing(name: str) -> None:
    text = render_html(NIGHTS[name]().report())
    page = Page(text)
    assert page.mismatches == []
    assert page.open == []
    assert all(address.startswith("#") or address == "data:," for address in page.addresses)
    assert not re.search(r"https?://|url\((?!#)|@import", text)
    assert "default-src 'none'" in text
    assert len(page.ids) == len(set(page.ids))
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= set(page.ids)
    assert not re.search(r"#0[0-9a-d]0[0-9a-d]0[0-9a-d]\b", text), "a marker colour was left in a chart"


@pytest.mark.parametrize("name", NIGHTS)
def test_every_kind_of_night_is_sound_markdown(name: str) -> None:
    report = NIGHTS[name]().report()
    text = render_markdown(report)
    assert text.startswith("# ")
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, table
    assert all(f"\n| {row.number:02d} |" in text for row in report.experiments)


def test_the_facts_stand_in_both_documents() -> None:
    report = nights.won().report()
    page = Page(render_html(report)).text
    document = render_markdown(report).replace("\\", "")
    for fact in (
        "Won: val_bpb 2.87 → 2.55 bits/byte",
        "95 % interval −0.35 … −0.29, 3 fresh seeds",
        "git merge experiment-18-pydoc-pretrain-combine-4",
        "learning_rate beyond 0.01",
        "MemoryError: batch 128",
        "width × activation",
        "latency_ms 55 is above 40",
        "97c4bb3d0f3a5b1e1f0c8e5d7a2b4c6d8e0f1a2b",
        "prepare.py and data/heldout.bin",
        "weight_decay = 0.01",
        "1 min 39 s",
    ):
        assert fact in page, fact
        assert fact in document, fact


def test_charts_are_there_in_both_widths_and_described() -> None:
    text = render_html(nights.won().report())
    labels = re.findall(r'<svg [^>]*role="img" aria-label="([^"]+)"', text)
    assert len(labels) == 8
    assert any("best learning_rate = 0.01: −0.240 bits/byte" in label for label in labels)
    assert "confirmed, 95 % interval" in text
    assert "worse →" in text


@dataclass(frozen=True)
class Move:
    factor: str
    before: Scalar | None
    after: Scalar | None
    parent: int
    effect: Effect | None


def refined() -> StudyReport:
    night = nights.screened()
    effect = night.effect(0.05, 0.01)
    both = night.experiment({"learning_rate": 0.01, "width": 256}, Phase.REFINE, "width-256")
    night.run(both, 0, Phase.REFINE, night.worse_by(-0.3))
    night.factor_effects += [
        nights.FactorEffect("learning_rate", None, effect, "promising", importance=0.704),
        nights.FactorEffect("width", None, effect, "promising", importance=0.291),
        nights.FactorEffect("log_every", None, effect, "promising", importance=0.005),
        nights.FactorEffect("batch", 16, effect, "unknown", None, ("warmup 50",), ("width 256",)),
    ]
    return night.report(moves={both: Move("width", None, 256, 2, effect)})


def test_a_move_around_the_best_so_far_is_told_against_it() -> None:
    report = refined()
    step = "against 02: width 128 → 256, −0.050 bits/byte, 95 % interval −0.060 … −0.040"
    assert step in Page(render_html(report)).text
    assert f"learning\\_rate = 0.01, width = 256; {step} |" in render_markdown(report)
    assert {row.step is None for row in report.experiments[:-1]} == {True}
    labels = re.findall(r"var\(--phase-refine\)", render_html(report))
    assert labels, "refinement has a colour of its own"


def test_shares_company_and_interactions_are_told() -> None:
    for text in (Page(render_html(refined())).text, render_markdown(refined()).replace("\\_", "_")):
        assert "Of the differences between the experiments, 70 % go with learning_rate and 29 % go with width." in text
        assert "cannot be told apart from" in text and "warmup 50" in text
        assert "does more or less with" in text and "width 256" in text
    assert "does more or less with" not in render_markdown(nights.won().report())


def test_documents_are_the_same_for_the_same_records() -> None:
    assert render_html(nights.won().report()) == render_html(nights.won().report())
    assert render_markdown(nights.won().report()) == render_markdown(nights.won().report())


def evil_night() -> Night:
    night = nights.baseline_only()
    number = night.experiment({"activation": EVIL}, Phase.SCREEN, "evil", reason=EVIL, note=EVIL, technique=EVIL)
    night.run(number, 0, Phase.SCREEN, 2.8)
    night.run(number, 1, Phase.SCREEN, None, cause="exit-status", detail=EVIL)
    effect = night.effect(0.07, 0.01)
    night.judge(number, VerdictKind.INCONCLUSIVE, EVIL, EVIL, effect)
    night.factor_effects.append(nights.FactorEffect("activation", EVIL, effect, "promising"))
    return night


def test_foreign_text_stays_text_in_html() -> None:
    text = render_html(evil_night().report(events=[EVIL]))
    page = Page(text)
    assert page.tags.count("script") == 1
    assert page.mismatches == []
    assert all(address.startswith("#") or address == "data:," for address in page.addresses)
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in text


def test_foreign_text_stays_text_in_markdown() -> None:
    text = render_markdown(evil_night().report(events=[EVIL]))
    bare = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)
    assert "<script>" not in bare
    assert "http://" not in bare
    assert "**b**" not in bare
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a|b", "a\\|b"),
        ("- item", "\\- item"),
        ("1. item", "1\\. item"),
        ("two\nlines", "two lines"),
        ("&lt;", "&amp;lt;"),
        ("plain, words ", "plain, words "),
    ],
)
def test_markdown_escapes(text: str, escaped: str) -> None:
    assert escape_markdown(text) == escaped


def test_the_table_has_full_precision_and_one_row_an_experiment(tmp_path: Path) -> None:
    night = nights.won()
    report = night.report()
    write_csv(report, tmp_path / "results.csv")
    with (tmp_path / "results.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS == tuple(report.rows[0].record)
    assert len(rows) == len(night.experiments)
    winner = rows[18]
    assert float(winner["metric_mean"]) == report.experiments[18].mean
    assert float(winner["effect"]) == night.verdicts[18].effect.delta  # type: ignore[union-attr]
    assert json.loads(winner["parameters"])["activation"] == "gelu"
    assert json.loads(winner["changed"]) == nights.BEST
    assert json.loads(winner["guardrails"]) == {"latency_ms": 31.0}
    assert winner["verdict"] == "keep"
    assert winner["branch"] == "experiment-18-pydoc-pretrain-combine-4"
    assert len(winner["job_ids"].split()) == 4
    assert rows[14]["metric_mean"] == ""
    assert rows[14]["failed_runs"] == "1"


def test_a_table_cell_never_starts_a_formula(tmp_path: Path) -> None:
    night = nights.baseline_only()
    night.experiment({"activation": "=1+1"}, Phase.SCREEN, "x", note='=HYPERLINK("a")', technique="@sum", reason="r")
    night.judge(1, VerdictKind.DISCARD, "worse", " +cmd", night.effect(-0.5, 0.1))
    write_csv(night.report(), tmp_path / "results.csv")
    with (tmp_path / "results.csv").open(newline="", encoding="utf-8") as file:
        row = list(csv.DictReader(file))[1]
    assert row["note"] == '\'=HYPERLINK("a")'
    assert row["technique"] == "'@sum"
    assert row["effect"] == "-0.5"
    assert not any(value.startswith(("=", "@", "+")) for value in row.values())


def test_five_columns_with_tabs(tmp_path: Path) -> None:
    report = nights.won().report()
    write_tsv(report, tmp_path / "results.tsv")
    lines = [line.split("\t") for line in (tmp_path / "results.tsv").read_text(encoding="utf-8").splitlines()]
    assert lines[0] == ["commit", "val_bpb", "memory_gb", "status", "description"]
    assert {len(line) for line in lines} == {5}
    ran = [row.number for row in report.experiments if row.mean is not None or row.failed_runs]
    assert len(ran) < len(report.experiments), "one was never run"
    of = dict(zip(ran, lines[1:], strict=True))
    assert [of[number][3] for number in (0, 1, 14, 18)] == ["keep", "discard", "crash", "keep"]
    assert of[14][1:3] == ["0.000000", "0.0"] and float(of[18][1]) > 0


def test_writers_replace_whole_files_and_leave_nothing_else(tmp_path: Path) -> None:
    report = nights.baseline_only().report()
    folder = tmp_path / "study"
    for write, name in ((write_html, "r.html"), (write_markdown, "r.md"), (write_csv, "r.csv")):
        write(report, folder / name)
        write(report, folder / name)
    assert sorted(path.name for path in folder.iterdir()) == ["r.csv", "r.html", "r.md"]
    assert stat.S_IMODE((folder / "r.md").stat().st_mode) == 0o644


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "taken"
    target.mkdir()
    (target / "inside").touch()
    with pytest.raises(OSError, match="taken"):
        write_atomically(target, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
