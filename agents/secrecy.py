"""What is secret in a study, and where it must not stand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from nightlab.configs.paths import JobPaths
from nightlab.configs.study import Study
from nightlab.configs.wording import one_line
from nightlab.errors import Fault
from nightlab.tools.notify.targets import target_secrets
from nightlab.tools.redacted_files import redact_file
from nightlab.tools.redaction import Redactor, check_secrets, environment_secrets

__all__ = ["clean_logs", "redactor_of", "secret_faults"]

MAX_TOLD = 120
KEEPERS = ("secrets", "notify.", "backend.env")
"""Where a study may hold a secret: what stands there is redacted in the ledger and committed nowhere."""
MEND = "name its variable in backend.pass_env and read it in the training command: this text goes onto branches"


def redactor_of(study: Study) -> Redactor:
    """What knows the study's secrets: those it declares, its channels, and what looks like a key in the environment."""
    addresses = [*study.notify.targets, *filter(None, [study.notify.replies])]
    more = [*target_secrets(addresses), *environment_secrets(study.backend.env), *_model_keys(study)]
    return Redactor.of(study.secrets, more=more)


def _model_keys(study: Study) -> list[tuple[str, str]]:
    """Name and value of the variables that hold the models' keys, whatever they are called."""
    names = {one.api_key_env for one in (*study.brain.endpoints, *study.brain.reviewers)}
    # The placeholders that servers of one's own are given are no secrets.
    return environment_secrets({f"{name}_API_KEY": os.environ[name] for name in sorted(names) if name in os.environ})


def secret_faults(study: Study, redactor: Redactor, file: Path) -> list[Fault]:
    """Secrets too short to be told from other text, and those in text that is executed, committed and reported."""
    faults = [replace(fault, file=file) for fault in check_secrets(study.secrets)]
    for key, value in _leaves(study.model_dump(mode="json", by_alias=True)):
        safe = redactor.redact_data(value)
        if safe != value and not key.startswith(KEEPERS):
            message = f"holds a secret: {one_line(str(safe))[:MAX_TOLD]}"
            faults.append(Fault(message, file=file, key=redactor.redact(key), mend=MEND))
    return faults


def _leaves(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Dotted key and value of everything that is no section; names count as values."""
    if isinstance(value, dict):
        for name, inner in value.items():
            place = f"{key}.{name}" if key else str(name)
            yield place, name
            yield from _leaves(inner, place)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _leaves(inner, f"{key}.{position}")
    else:
        yield key, value


def clean_logs(paths: JobPaths, redactor: Redactor) -> None:
    """Take the secrets out of an ended job's logs. Raises DiskError without room for their copies."""
    for log in (paths.stdout, paths.stderr):
        redact_file(log, redactor)
