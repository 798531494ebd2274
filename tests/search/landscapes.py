"""Landscapes of a few runs, for the tests of what is built on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from nightlab.configs.study import Factor, Scalar
from nightlab.knowledge.records import Phase
from nightlab.search.evidence import Evidence
from nightlab.search.history import RankedFactor, Trial
from nightlab.search.landscape import Landscape
from nightlab.search.lattice import Lattice, Point
from nightlab.search.ranking import rank_factors
from nightlab.search.refinement import Choice, Chooser
from tests.search.simulate import make_study

PARAMETERS: dict[str, Scalar] = {"lr": 1.0, "act": "tanh", "ema": False, "decay": 0.1}
SPACE = {
    "lr": Factor(levels=[0.25, 0.5, 2.0, 4.0], scale="log"),
    "act": Factor(levels=["relu", "gelu"]),
    "ema": Factor(levels=[True]),
    "decay": Factor(levels=[0.01, 1.0], scale="log"),
}
STUDY = make_study(PARAMETERS, SPACE, min_effect=0.0)
RANKED = rank_factors(STUDY, STUDY.space, tiers={}, priors={})

Told = tuple[Mapping[str, Scalar], float | None]
"""What a run changed, and its value; None: it failed."""


def trial(number: int, changed: Mapping[str, Scalar], value: float | None, *, out: bool = False) -> Trial:
    state: Literal["pending", "failed", "measured"] = "pending" if out else "failed" if value is None else "measured"
    seed = 0 if changed else number
    parameters = {**PARAMETERS, **changed}
    return Trial(number if changed else 0, parameters, dict(changed), seed, Phase.SCREEN, state, value)


def landscape_of(
    told: Iterable[Told],
    *,
    out: Iterable[Mapping[str, Scalar]] = (),
    factors: tuple[RankedFactor, ...] = RANKED,
    forbidden: tuple[dict[str, Scalar], ...] = (),
) -> Landscape:
    """After these runs, with `out` in flight."""
    trials = [trial(number, changed, value) for number, (changed, value) in enumerate(told)]
    trials += [trial(100 + number, changed, None, out=True) for number, changed in enumerate(out)]
    return Landscape.of(Lattice.of(STUDY, factors, forbidden), Evidence.of(STUDY, trials))


def choose(landscape: Landscape, pending: Sequence[Point], count: int, seed: int, *, alone: bool) -> list[Choice]:
    """Up to `count` configurations, best first, each as `Chooser.best` gives it."""
    chooser, chosen = Chooser(landscape, pending, seed, alone=alone), list[Choice]()
    while len(chosen) < count and (choice := chooser.best()):
        chooser.take(choice)
        chosen.append(choice)
    return chosen
