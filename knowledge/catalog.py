"""The catalog: every technique the lab knows, built-in ones and those of the user's own file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path

import yaml

from nightlab.configs.wording import show
from nightlab.errors import ConfigError, Fault
from nightlab.knowledge.techniques import (
    EVIDENCE_WEIGHTS,
    CatalogMeta,
    Technique,
    TechniqueParameter,
    factor_levels,
    method_names,
    prior_effect,
)
from nightlab.knowledge.user_catalog import read_user_catalog

__all__ = [
    "Catalog",
    "CatalogMeta",
    "Technique",
    "TechniqueParameter",
    "factor_levels",
    "load_catalog",
    "method_names",
    "prior_effect",
]

BUILT_IN = Path(__file__).parent / "data" / "techniques.yaml"


@dataclass(frozen=True)
class Catalog:
    """Techniques by tier, with the vocabulary that describes them."""

    meta: CatalogMeta
    techniques: tuple[Technique, ...]

    @cached_property
    def _by_id(self) -> dict[str, Technique]:
        return {technique.id: technique for technique in self.techniques}

    def get(self, technique_id: str) -> Technique:
        """One technique. Raises ConfigError with the closest ids for an unknown one."""
        if technique_id not in self._by_id:
            raise ConfigError(_unknown("technique", technique_id, self._by_id))
        return self._by_id[technique_id]

    def match(
        self,
        method: str | None = None,
        symptoms: Iterable[str] = (),
        text: str | None = None,
        tier: int | None = None,
    ) -> list[Technique]:
        """Techniques that hold for a method, cure at least one of the symptoms, contain every word and are of a tier.

        Ordered by tier, number of symptoms they cure, cost and evidence. Raises ConfigError for an unknown symptom.
        """
        wanted = set(symptoms)
        if unknown := sorted(wanted - self.meta.symptoms.keys()):
            raise ConfigError([_unknown("symptom", symptom, self.meta.symptoms) for symptom in unknown])
        words = text.lower().split() if text else []
        names = set(method_names(method)) if method else None
        found = [
            technique
            for technique in self.techniques
            if (names is None or names & set(technique.applies_to))
            and (not wanted or wanted & set(technique.symptoms))
            and (tier is None or technique.tier == tier)
            and all(word in _words_of(technique) for word in words)
        ]
        return sorted(found, key=lambda technique: _rank(technique, wanted))


def load_catalog(user_file: Path | None = None) -> Catalog:
    """The built-in catalog, with a user's own file on top.

    An entry with a known id replaces only the keys it gives; a new id adds a technique. Raises ConfigError with every
    fault of the user's file at once.
    """
    built_in = _built_in()
    if user_file is None:
        return built_in
    meta, techniques = read_user_catalog(user_file, built_in.meta, built_in.techniques)
    return Catalog(meta, techniques)


@cache
def _built_in() -> Catalog:
    # Where PyYAML was built without libyaml its own loader reads the same, ten times slower.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with BUILT_IN.open("rb") as file:
        data = yaml.load(file, Loader=loader)  # noqa: S506
    return Catalog(
        CatalogMeta.model_validate(data["meta"]), tuple(Technique.model_validate(entry) for entry in data["techniques"])
    )


def _words_of(technique: Technique) -> str:
    parts = (technique.id, technique.name, technique.category, technique.effect, *technique.params)
    return " ".join(parts).lower()


def _rank(technique: Technique, symptoms: set[str]) -> tuple[int, int, float, int, str]:
    evidence = list(EVIDENCE_WEIGHTS).index(technique.evidence)
    return technique.tier, -len(symptoms & set(technique.symptoms)), technique.cost, evidence, technique.id


def _unknown(what: str, word: str, known: Iterable[str]) -> Fault:
    options = list(known)
    close = get_close_matches(word.lower().replace("-", "_"), options, n=3, cutoff=0.6)
    close = close or [option for option in options if word.lower() in option][:3]
    mend = f"did you mean {' or '.join(close)}?" if close else "`nightlab catalog list` shows what there is"
    return Fault(f"{show(word)} is no {what} of the catalog", value=word, mend=mend)
