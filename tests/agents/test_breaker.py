"""What fails the same way is left out by its factor, a bundle as one."""

from __future__ import annotations

from pathlib import Path

from nightlab.agents.breaker import trips
from nightlab.agents.design import write_design
from nightlab.agents.factors import design_of
from nightlab.agents.history import history_of
from nightlab.search.levels import changed_from, setting
from tests.agents.lab import executed, new_lab, planned


def test_a_bundle_whose_settings_all_fail_is_left_out_as_one_factor(tmp_path: Path) -> None:
    settings = {f"fast_{width}": {"crash": "yes", "width": width} for width in (48, 64, 96)}
    with new_lab(tmp_path, space={"recipe": {"settings": settings}}, failures={"breaker": 3}) as lab:
        design = design_of(lab, [], [])
        lab.ledger.update_study(design=write_design(design))
        (recipe,) = design.factors
        runs = [planned(lab, changed_from(lab.study, setting(lab.study, recipe, level))) for level in recipe.levels]
        for run in runs:
            executed(lab, run)
        history_of(lab.ledger, known=lab.configurations)
        (trip,) = trips(lab)
        assert trip.factor == "recipe"
