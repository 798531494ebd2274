"""Every method of the search bench under its name: the peers, and nightlab through its public ask-and-tell library."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.catalogs import Catalog, catalog_of, chances_of, reversed_catalog
from bench.night import Night
from bench.peers import PEERS
from bench.tables import Table

__all__ = ["METHODS", "NIGHTLAB", "Method"]

EDITIONS = dict.fromkeys(PEERS, "1") | {"keep/discard": "2"}
"""Raised by hand when a peer's code changes what it does: cached nights of another edition are not used."""
PACKAGES = {"Optuna TPE": "optuna", "Optuna GP": "optuna", "CMA-ES": "optuna", "SMAC": "smac"}
NIGHTLAB = ("nightlab", "nightlab + catalog", "nightlab + misleading catalog")


@dataclass(frozen=True)
class Method:
    """One column of the bench."""

    name: str
    catalog: Callable[[Table, Sequence[Table]], Catalog] | None = None
    """What it is told beforehand of a table, from all tables of the folder."""
    knows_budget: bool = False
    """It plans by the budget, so that a night of 20 is no prefix of a night of 50."""
    slow: bool = False
    """Seconds a night; the short form gives it fewer seeds."""
    scenarios: tuple[str, ...] = ("default", "mediocre")

    @property
    def package(self) -> str:
        return PACKAGES.get(self.name, "nightlab" if self.name in NIGHTLAB else "numpy")

    @cached_property
    def edition(self) -> str:
        """Changes when the method would give other results."""
        if self.name in NIGHTLAB:
            return _source_digest()
        if self.name in PACKAGES:
            return f"{EDITIONS[self.name]}, {self.package} {version(self.package)}"
        return EDITIONS[self.name]

    def play(self, night: Night, seed: int, tables: Sequence[Table]) -> None:
        """Spends the night's runs."""
        if self.name in PEERS:
            PEERS[self.name](night, seed)
        else:
            _nightlab(night, seed, self.catalog(night.table, tables) if self.catalog else None)

    @property
    def missing(self) -> str | None:
        """The package without which it cannot run."""
        try:
            version(self.package)
        except PackageNotFoundError:
            return self.package
        return None


def _source_digest() -> str:
    from nightlab import search

    rooms = [Path(folder) for folder in search.__path__]
    files = sorted(file for room in rooms for file in room.glob("*.py"))
    digest = hashlib.sha256()
    for file in (*files, Path(__file__), Path(__file__).with_name("catalogs.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _nightlab(night: Night, seed: int, catalog: Catalog | None) -> None:
    """Ask for a run, make it, tell its value."""
    from nightlab.configs.study import Factor, SearchSettings
    from nightlab.search.searcher import Searcher

    table = night.table
    space = {
        axis.name: Factor(
            levels=list(axis.levels),
            categorical=not axis.ordered,
            scale="log" if axis.log else "linear",
        )
        for axis in table.axes
        if len(axis.levels) > 1
    }
    searcher = Searcher(
        space,
        table.parameters(night.start),
        budget=night.budget,
        direction="minimize",
        settings=SearchSettings(baseline_replicates=1, confirm=False),
        priors=chances_of(catalog, table, night.start) if catalog else None,
        seed=seed,
    )
    while night.left:
        proposals = searcher.ask(1)
        if not proposals:
            night.end()
            return
        loss = night.run(table.config(proposals[0].parameters))
        if math.isfinite(loss):
            searcher.tell(proposals[0].number, loss, seed=proposals[0].seed)
        else:
            searcher.fail(proposals[0].number, "diverged", seed=proposals[0].seed)
        night.recommend(table.config(searcher.best().parameters))


def _known(table: Table, tables: Sequence[Table]) -> Catalog:
    return catalog_of(table, tables)


def _misleading(table: Table, tables: Sequence[Table]) -> Catalog:
    return reversed_catalog(catalog_of(table, tables))


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        *(Method(name, knows_budget=name == "screening + array", slow=name in ("Optuna GP", "SMAC")) for name in PEERS),
        Method("nightlab", knows_budget=True),
        Method("nightlab + catalog", catalog=_known, knows_budget=True),
        Method("nightlab + misleading catalog", catalog=_misleading, knows_budget=True, scenarios=("default",)),
    )
}
