"""Where messages go: Apprise URLs (https://appriseit.com/services/), in the study file or in a variable it names."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nightlab.errors import ConfigError, Fault

__all__ = ["Target", "check_targets", "open_targets", "target_secrets"]

VARIABLE = "env:"
_KEY = "notify.targets"
_INSTALL = 'install it with: pip install "nightlab[notify]"'
_PIECE = re.compile(r"[^/:@?&=#,\s]{8,}")


@dataclass(frozen=True)
class Target:
    """One service: `deliver(heading, body, urgency)` says whether it took the message, and may raise anything."""

    id: str
    """Short and stable, without any secret: part of the keys by which a message is told once."""
    label: str
    """For people: the variable's name or the kind of service."""
    deliver: Callable[[str, str, str], bool]


def check_targets(targets: Iterable[str], environment: Mapping[str, str] = os.environ) -> list[Fault]:
    """What is wrong with a study's `notify.targets`; sends nothing and never shows a URL, which may hold a key."""
    targets = list(targets)
    try:
        apprise = _apprise() if targets else None
    except ConfigError as error:
        return error.faults
    return [
        fault
        for place, entry in enumerate(targets)
        if isinstance(fault := _opened(apprise, place, entry, environment), Fault)
    ]


def open_targets(targets: Iterable[str], environment: Mapping[str, str] = os.environ) -> list[Target]:
    """The channels of a study. Raises ConfigError with every fault at once."""
    targets = list(targets)
    apprise = _apprise() if targets else None
    opened = [_opened(apprise, place, entry, environment) for place, entry in enumerate(targets)]
    if faults := [one for one in opened if isinstance(one, Fault)]:
        raise ConfigError(faults)
    return [one for one in opened if isinstance(one, Target)]


def target_secrets(targets: Iterable[str], environment: Mapping[str, str] = os.environ) -> list[tuple[str, str]]:
    """Name and value for a `Redactor`: each URL, and the parts of it that look random, for services echo them."""
    pairs = []
    for entry in targets:
        url, name = _url(entry, environment) or "", _label(entry)
        rest = url.partition("://")[2]
        pieces = (piece for piece in _PIECE.findall(rest) if re.search(r"\d", piece) and re.search(r"[A-Za-z]", piece))
        pairs += [(name, value) for value in (url, *pieces) if value]
    return pairs


def _opened(apprise: Any, place: int, entry: str, environment: Mapping[str, str]) -> Target | Fault:
    key, url = f"{_KEY}.{place}", _url(entry, environment)
    if url is None:
        name = entry.removeprefix(VARIABLE)
        return Fault(f"variable {name} is not set", key=key, mend=f"export {name}='<Apprise URL>' where the lab starts")
    service = _instance(apprise, url)
    if service is None:
        scheme = url.partition("://")[0] if "://" in url else ""
        known = re.fullmatch(r"[a-z][a-z0-9+]{0,20}", scheme) and scheme in apprise.plugins.N_MGR.schemas()
        message = f"the {scheme}:// URL is not complete" if known else "is not the URL of a service that Apprise knows"
        return Fault(message, key=key, mend="see https://appriseit.com/services/ for how the service's URL is written")

    def deliver(heading: str, body: str, urgency: str) -> bool:
        return bool(service.notify(title=heading, body=body, notify_type=urgency, body_format="text"))

    return Target(hashlib.sha256(url.encode()).hexdigest()[:12], _label(entry, service.service_name), deliver)


def _url(entry: str, environment: Mapping[str, str]) -> str | None:
    if not entry.startswith(VARIABLE):
        return entry
    return environment.get(entry.removeprefix(VARIABLE)) or None


def _label(entry: str, service: object = "") -> str:
    return entry.removeprefix(VARIABLE) if entry.startswith(VARIABLE) else str(service) or "notify"


def _apprise() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import apprise
    except ImportError as error:
        raise ConfigError(Fault("notifications need the package apprise", key=_KEY, mend=_INSTALL)) from error
    return apprise


def _instance(apprise: Any, url: str) -> Any:
    # Loaded with the first URL, its plugins warn of what the standard library has deprecated.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return apprise.Apprise.instantiate(url, asset=apprise.AppriseAsset(app_id="nightlab", app_desc="nightlab"))
