"""The report of a study, from its ledger to the files in its folder."""

from __future__ import annotations

from pathlib import Path

from nightlab.agents.context import Lab
from nightlab.configs.paths import StudyPaths
from nightlab.configs.study import Study
from nightlab.knowledge.ledger import Ledger
from nightlab.report.csv import write_csv, write_tsv
from nightlab.report.html import write_html
from nightlab.report.load import load_report
from nightlab.report.markdown import write_markdown
from nightlab.tools.disk import require_space
from nightlab.tools.redaction import Redactor

__all__ = ["write_files", "write_reports"]

REPORT_BYTES = 8 * 1024 * 1024
"""What table and report need beside the old ones while they are replaced."""


def write_files(
    ledger: Ledger, study: Study, paths: StudyPaths, redactor: Redactor, *, tsv: bool = False
) -> list[Path]:
    """Write table and report, each replaced as a whole and without secrets; returns what was written.

    `tsv`: the table of five columns too, whatever the study says. Raises DiskError without room.
    """
    require_space(paths.folder, REPORT_BYTES)
    report = load_report(ledger, study, paths)
    write_csv(report, paths.results_csv, redactor.redact)
    write_markdown(report, paths.final_report_md, redactor.redact)
    write_html(report, paths.final_report_html, redactor.redact)
    written = [paths.final_report_html, paths.final_report_md, paths.results_csv]
    if tsv or study.report.tsv:
        write_tsv(report, paths.results_tsv, redactor.redact)
        written.append(paths.results_tsv)
    return written


def write_reports(lab: Lab) -> None:
    """`write_files` for an open lab: what the supervisor calls at the end of the night."""
    write_files(lab.ledger, lab.study, lab.paths, lab.redactor)
