"""The space as a lattice: points and configurations, bundles, conditions and constraints."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from nightlab.configs.study import Factor, Scalar
from nightlab.knowledge.records import Phase
from nightlab.search.history import History, Trial
from nightlab.search.lattice import Lattice, Point
from nightlab.search.levels import held_back
from nightlab.search.ranking import rank_factors
from tests.search.simulate import make_study

PARAMETERS: dict[str, Scalar] = {
    "lr": 1.0,
    "warmup": 0,
    "act": "tanh",
    "lora": False,
    "rank": 8,
    "drop_1": 0.1,
    "drop_2": 0.1,
    "first": "relu",
    "second": "gelu",
}
SPACE = {
    "schedule": Factor.model_validate({"settings": {"warm": {"lr": 0.5, "warmup": 100}, "hot": {"lr": 2.0}}}),
    "act": Factor(levels=["tanh", "relu", "gelu"]),
    "lora": Factor(levels=[True]),
    "rank": Factor(levels=[16, 4, 64], scale="log", requires={"lora": True}),
    "drop_1": Factor(levels=[0.0, 0.1, 0.2]),
    "drop_2": Factor(levels=[0.0, 0.1, 0.2]),
    "first": Factor(levels=["relu", "gelu", "silu"]),
    "second": Factor(levels=["gelu", "silu", "relu"]),
}
FORBIDDEN: tuple[dict[str, Scalar], ...] = ({"lora": True, "act": "relu"},)


def lattice() -> Lattice:
    study = make_study(PARAMETERS, SPACE)
    return Lattice.of(study, rank_factors(study, study.space, tiers={}, priors={}), FORBIDDEN)


def axis(name: str) -> int:
    return next(index for index, one in enumerate(lattice().axes) if one.factor.name == name)


def at(name: str, **values: Scalar) -> Point:
    found = lattice().point_of({**PARAMETERS, **values})
    assert found is not None, name
    return found


points = st.tuples(*(st.integers(0, len(one.settings) - 1) for one in lattice().axes))


@given(points)
def test_a_point_is_the_point_of_its_configuration(point: Point) -> None:
    space = lattice()
    canonical = space.canonical(point)
    assert space.point_of(space.parameters(canonical)) == canonical
    assert space.canonical(canonical) == canonical
    assert space.parameters(canonical) == {**PARAMETERS, **space.changed(canonical)}


@given(points)
def test_what_means_nothing_stands_at_the_baseline(point: Point) -> None:
    space = lattice()
    held = space.parameters(space.canonical(point))
    assert held["lora"] or held["rank"] == 8


def test_the_baseline_changes_nothing() -> None:
    assert lattice().changed(lattice().baseline) == {}
    assert lattice().point_of(PARAMETERS) == lattice().baseline


def test_ordered_values_ascend_and_others_begin_with_the_baselines() -> None:
    space = lattice()
    assert [held["rank"] for held in space.axes[axis("rank")].settings] == [4, 8, 16, 64]
    assert space.axes[axis("act")].settings[0] == {"act": "tanh"}
    assert space.axes[axis("act")].baseline == 0


def test_the_order_to_try_leaves_the_baseline_out() -> None:
    for one in lattice().axes:
        assert sorted((*one.preferred, one.baseline)) == list(range(len(one.settings)))
        assert one.level(one.baseline) is None
        assert [one.level(position) for position in one.preferred] == list(one.factor.levels)


def test_a_bundle_sets_all_of_its_parameters() -> None:
    place = axis("schedule")
    changes = [lattice().changed(lattice().moved(lattice().baseline, (place, to))) for to in range(3)]
    assert sorted(changes, key=len) == [{}, {"lr": 2.0}, {"lr": 0.5, "warmup": 100}]


def test_half_a_bundle_is_no_point() -> None:
    assert lattice().point_of({**PARAMETERS, "warmup": 100}) is None


def test_a_value_that_no_level_has_is_no_point() -> None:
    assert lattice().point_of({**PARAMETERS, "drop_1": 0.15}) is None
    assert lattice().point_of({**PARAMETERS, "act": "swish"}) is None


def test_equal_numbers_are_the_same_value_but_flags_are_not_numbers() -> None:
    assert lattice().point_of({**PARAMETERS, "lr": 1, "rank": 8.0}) == lattice().baseline
    assert lattice().point_of({**PARAMETERS, "lora": 0}) is None


def test_a_conditional_factor_is_active_only_where_its_requirement_holds() -> None:
    on = at("lora", lora=True)
    assert not lattice().active(lattice().baseline, axis("rank"))
    assert lattice().active(on, axis("rank"))
    ranked = lattice().moved(on, (axis("rank"), 3))
    assert lattice().changed(ranked) == {"lora": True, "rank": 64}
    assert lattice().moved(ranked, (axis("lora"), lattice().axes[axis("lora")].baseline)) == lattice().baseline


def test_a_chain_of_conditions_falls_together() -> None:
    parameters: dict[str, Scalar] = {"a": False, "b": False, "c": False}
    space = {
        "c": Factor(levels=[True], requires={"b": True}),
        "b": Factor(levels=[True], requires={"a": True}),
        "a": Factor(levels=[True]),
    }
    study = make_study(parameters, space)
    chain = Lattice.of(study, rank_factors(study, study.space, tiers={}, priors={}))
    found = {tuple(chain.changed(chain.canonical(point))) for point in product(range(2), repeat=3)}
    assert found == {(), ("a",), ("a", "b"), ("a", "b", "c")}


def test_what_is_forbidden_is_not_allowed() -> None:
    assert lattice().allowed(at("act", act="relu")) and lattice().allowed(at("lora", lora=True))
    assert not lattice().allowed(at("both", act="relu", lora=True))


def test_axes_with_the_same_values_are_related() -> None:
    names = [[lattice().axes[index].factor.name for index in group] for group in lattice().geometry.groups]
    assert sorted(sorted(group) for group in names) == [["drop_1", "drop_2"], ["first", "second"]]


def test_related_categorical_axes_share_codes_though_their_baselines_differ() -> None:
    space = lattice()
    coded = [
        {str(held[name]): space.codes[axis(name)][place] for place, held in enumerate(space.axes[axis(name)].settings)}
        for name in ("first", "second")
    ]
    assert coded[0] == coded[1]
    assert sorted(coded[0].values()) == [0, 1, 2]


def test_what_no_axis_stands_for_is_at_no_point() -> None:
    """A factor that is left out must not make its configurations look like those without it."""
    study = make_study(PARAMETERS, SPACE)
    factors = rank_factors(study, study.space, tiers={}, priors={})
    without = Lattice.of(study, tuple(factor for factor in factors if factor.name != "act"))
    assert without.point_of({**PARAMETERS, "act": "relu", "drop_1": 0.2}) is None
    assert without.point_of({**PARAMETERS, "drop_1": 0.2}) is not None


def test_of_a_factor_held_back_only_what_ran_well_stays() -> None:
    study = make_study(PARAMETERS, SPACE)
    factors = rank_factors(study, study.space, tiers={}, priors={})
    told: list[tuple[dict[str, Scalar], float | None]] = [({}, 1.0), ({"act": "gelu", "drop_1": 0.2}, 0.5)]
    told += [({"act": "relu"}, None), ({"lora": True}, None)]
    trials = tuple(
        Trial(
            number,
            {**PARAMETERS, **changed},
            changed,
            0,
            Phase.SCREEN,
            "failed" if value is None else "measured",
            value,
        )
        for number, (changed, value) in enumerate(told)
    )
    held = held_back(study, History(factors, trials), {"act", "lora"})
    levels = {factor.name: factor.levels for factor in held.factors}
    assert levels["act"] == ("gelu",), "the incumbent keeps what it adopted"
    assert "lora" not in levels, "nothing of it ran well"
    assert levels["drop_1"] == next(factor.levels for factor in factors if factor.name == "drop_1")
    assert Lattice.of(study, held.factors).point_of(trials[1].parameters) is not None
