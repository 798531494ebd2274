"""What a run's own files show to be wrong with it, kept beside its logs: for the result card and the diagnosis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from nightlab.agents.context import Lab
from nightlab.configs.files import write_atomically
from nightlab.configs.paths import JobPaths
from nightlab.tools.datasets.findings import About, Finding
from nightlab.tools.metrics.findings import NamedFinding
from nightlab.tools.redaction import Redactor

__all__ = ["findings_of_baseline", "keep_findings", "kept_findings"]


def keep_findings(paths: JobPaths, findings: Sequence[NamedFinding], redactor: Redactor) -> None:
    """Write the findings without secrets; nothing where there are none.

    Raises DiskError when the disk takes no more.
    """
    if findings:
        told = redactor.redact_data([asdict(finding) for finding in findings])
        write_atomically(paths.findings, json.dumps(told, indent=2, ensure_ascii=False) + "\n")


def kept_findings(paths: JobPaths) -> list[NamedFinding]:
    """The findings as `keep_findings` wrote them; none where there is nothing to read."""
    try:
        entries = json.loads(paths.findings.read_bytes())
        return [NamedFinding(**{**entry, "symptoms": tuple(entry["symptoms"])}) for entry in entries]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def findings_of_baseline(lab: Lab) -> tuple[Finding, ...]:
    """The findings of the baseline's runs, each name once, as the diagnosis takes them."""
    runs = lab.ledger.runs(0)
    found = [finding for run in runs for finding in kept_findings(lab.paths.job(0, run.seed, run.attempt))]
    named = {finding.name: finding for finding in found}.values()
    return tuple(Finding(_about(one), f"The baseline's {one}.", one.symptoms) for one in named)


def _about(finding: NamedFinding) -> About:
    """The dimension it belongs to: rewards are of the training, the rest is of what the model is asked and answers."""
    return "training" if any(symptom.startswith("rl_") for symptom in finding.symptoms) else "prompt"
