"""When a running run is ended for being behind, and when it is let alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from nightlab.configs.pruning import PruningSettings
from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Phase, VerdictKind
from nightlab.search.belief import judge
from nightlab.search.history import History, Trial, cells_of
from nightlab.search.pruning import Curve, Look, Pruning, Warmup, schedule_of, should_prune, warmup_of
from tests.task import study_data

CAREFUL, AUTO = PruningSettings(mode="careful"), PruningSettings()
TOTAL = 1000


def falling(end: float, *, start: float = 3.0, pace: float = 4.0) -> Callable[[float], float]:
    """A loss that falls from `start` towards `end`, most of it early."""
    return lambda share: end + (start - end) * math.exp(-pace * share)


def late(share: float) -> float:
    """A loss of which most falls at the end."""
    return 3.0 - 2.2 * share**2


def curve(
    number: int,
    shape: Callable[[float], float],
    *,
    until: float = 1.0,
    schedule: tuple[Scalar, ...] = (),
    warmup: Warmup | None = None,
    ended: bool | None = None,
    total: int = TOTAL,
) -> Curve:
    """Reports at every 2 % of the steps, up to the share `until`."""
    shares = [n / 50 for n in range(51) if n / 50 <= until]
    points = tuple((share * total, shape(share)) for share in shares)
    return Curve(number, points, schedule, warmup, ended=until >= 1.0 if ended is None else ended)


def replicates(schedule: tuple[Scalar, ...] = (), *, end: float = 1.0) -> list[Curve]:
    """The baseline on three seeds, 0.02 apart."""
    return [curve(0, falling(end + offset), schedule=schedule) for offset in (-0.02, 0.0, 0.02)]


def asked(
    run: Curve, peers: list[Curve], look: Look = "first", settings: PruningSettings = AUTO, min_effect: float = 0.01
) -> Pruning | None:
    return should_prune(settings, run, peers, look=look, min_effect=min_effect)


def test_what_is_clearly_worse_near_the_incumbent_is_ended_from_a_quarter_on() -> None:
    hopeless = falling(2.5)
    assert asked(curve(1, hopeless, until=0.22), replicates(), "near") is None
    pruning = asked(curve(1, hopeless, until=0.28), replicates(), "near")
    assert pruning is not None
    assert (pruning.step, pruning.total_steps) == (280, 1000)
    assert pruning.reason.startswith("at step 280 of 1000: 2.663, the best had 1.653 there; clearly worse")
    assert pruning.reference == pytest.approx(1.653, abs=1e-3)
    assert 1.0 < pruning.estimate <= pruning.value


def test_a_run_that_has_done_its_last_step_is_let_alone() -> None:
    poor = curve(1, falling(2.5), ended=False)
    assert asked(poor, replicates()) is None
    cut = replace(poor, points=poor.points[:-1])
    assert asked(cut, replicates()) is not None, "one report earlier it is ended"
    lost = replace(poor, points=(*poor.points[:-2], *((step, math.nan) for step, _ in poor.points[-2:])))
    assert (found := asked(lost, replicates())) is not None and found.diverged


def test_a_run_within_the_noise_or_a_quarter_of_the_gain_goes_on_to_its_end() -> None:
    for end in (1.0, 1.03, 1.2):
        for until in (0.3, 0.5, 0.8, 0.98):
            assert asked(curve(1, falling(end), until=until), replicates(), "near") is None


def test_larger_noise_between_seeds_protects_a_run() -> None:
    run = curve(1, falling(1.9), until=0.6)
    calm = [curve(0, falling(1.0 + offset)) for offset in (-0.02, 0.0, 0.02)]
    noisy = [curve(0, falling(1.0 + offset)) for offset in (-0.5, 0.0, 0.5)]
    assert asked(run, calm, "near") is not None
    assert asked(run, noisy, "near") is None


def test_less_than_the_least_worthwhile_gain_ends_nothing() -> None:
    run = curve(1, falling(1.9), until=0.6)
    assert asked(run, replicates(), "near", min_effect=2.0) is None


def test_a_single_bad_report_is_no_reason() -> None:
    good = curve(1, falling(1.0), until=0.5)
    spike = Curve(1, (*good.points, (520.0, 9.0)))
    assert asked(spike, replicates(), "near") is None
    assert asked(Curve(1, (*spike.points, (540.0, 9.0))), replicates(), "near") is not None


def test_what_is_better_when_higher_is_turned_round() -> None:
    def accuracy(end: float) -> Callable[[float], float]:
        return lambda share: end * (1 - math.exp(-4 * share))

    peers = [curve(0, accuracy(0.9 + offset)) for offset in (-0.01, 0.0, 0.01)]
    bad, good = curve(1, accuracy(0.3), until=0.4), curve(2, accuracy(0.99), until=0.4)
    pruning = should_prune(AUTO, bad, peers, look="near", maximize=True)
    assert pruning is not None and pruning.value <= pruning.estimate < 0.9
    assert should_prune(AUTO, good, peers, look="near", maximize=True) is None
    assert should_prune(AUTO, good, peers, look="near", maximize=False) is not None


def test_first_looks_are_halved_at_the_end_of_the_warm_up_and_not_before() -> None:
    others = [curve(n, falling(1.0 + n / 10), until=0.14, ended=False) for n in range(2, 7)]
    behind = falling(1.8, pace=2.0)
    assert asked(curve(1, behind, until=0.10), [*replicates(), *others]) is None
    pruning = asked(curve(1, behind, until=0.14), [*replicates(), *others])
    assert pruning is not None
    assert "place 7 of 7 that got to step 120, of which 2 go on" in pruning.reason


def test_the_best_third_of_a_rung_goes_on_and_so_does_what_is_close_to_the_incumbent() -> None:
    worse = [curve(n, falling(2.0 + n / 10, pace=2.0), until=0.14, ended=False) for n in range(2, 7)]
    ahead = curve(1, falling(1.9, pace=2.0), until=0.14)
    assert asked(ahead, [*replicates(), *worse]) is None, "second of seven"
    better = [curve(n, falling(1.0 - n / 100), until=0.14, ended=False) for n in range(2, 7)]
    assert asked(curve(1, falling(1.0), until=0.14), [*replicates(), *better]) is None, "last of seven, by a hair"


def test_careful_ends_no_first_look_for_its_rank() -> None:
    others = [curve(n, falling(1.0 + n / 10), until=0.14, ended=False) for n in range(2, 7)]
    run = curve(1, falling(1.8, pace=2.0), until=0.14)
    assert asked(run, [*replicates(), *others]) is not None
    assert asked(run, [*replicates(), *others], settings=CAREFUL) is None
    assert asked(curve(1, falling(2.5), until=0.3), replicates(), settings=CAREFUL) is not None


def test_two_runs_are_too_few_to_halve() -> None:
    assert asked(curve(1, falling(1.8, pace=2.0), until=0.14), replicates()) is None


@pytest.mark.parametrize("until", [0.14, 0.3, 0.5, 0.8])
def test_another_schedule_is_not_compared_half_way(until: float) -> None:
    # A cosine run lies above a constant one until its rate has come down, and ends below.
    constant = replicates(("constant",))
    cosine = curve(1, late, until=until, schedule=("cosine",))
    assert asked(cosine, constant, "near") is None
    if until in (0.3, 0.5):
        assert asked(replace(cosine, schedule=("constant",)), constant, "near") is not None


def test_a_run_is_held_against_those_of_its_own_schedule() -> None:
    cosine = [curve(1, late, schedule=("cosine",))]
    run = curve(2, lambda share: 3.0 - 0.2 * share**2, until=0.6, schedule=("cosine",))
    pruning = asked(run, [*replicates(("constant",)), *cosine], "near")
    assert pruning is not None and pruning.reference == pytest.approx(3.0 - 2.2 * 0.36)


@pytest.mark.parametrize("look", ["first", "near", "row"])
def test_divergence_ends_a_run_whatever_its_schedule(look: Look) -> None:
    away = curve(1, lambda share: 3.0 + 5 * share, until=0.5, schedule=("cosine",))
    pruning = asked(away, replicates(("constant",)), look)
    assert pruning is not None and pruning.diverged and "it has diverged" in pruning.reason
    lost = Curve(1, ((0.0, 3.0), (20.0, math.nan), (40.0, math.nan)), ("cosine",))
    pruning = asked(lost, [], look)
    assert pruning is not None and pruning.diverged and math.isnan(pruning.estimate)
    assert asked(Curve(1, ((0.0, 3.0), (20.0, math.nan))), [], look) is None


def test_a_row_whose_effect_is_needed_is_ended_for_nothing_less_than_divergence() -> None:
    worse = curve(1, falling(2.5), until=0.9)
    assert asked(worse, replicates(), "near") is not None
    assert asked(worse, replicates(), "row") is None
    away = curve(1, lambda share: abs(share - 0.5) * 4 + 1.0, until=0.9)
    assert asked(away, replicates(), "row") is not None


@pytest.mark.parametrize("settings", [AUTO, CAREFUL, PruningSettings(mode="off")])
def test_what_must_not_be_ended_is_not(settings: PruningSettings) -> None:
    away = curve(1, lambda share: 3.0 + 50 * share, until=0.9)
    assert asked(away, replicates(), "never", settings) is None
    if settings.mode == "off":
        assert asked(away, replicates(), "first", settings) is None


@pytest.mark.parametrize(
    ("warmup", "asked_for", "start"),
    [
        (None, None, 0.12),
        (Warmup(), None, 0.04),
        (Warmup(share=0.1), None, 0.14),
        (Warmup(steps=100), None, 0.14),
        (Warmup(steps=1), None, 0.06),
        (Warmup(share=0.02, steps=100), None, 0.14),
        (Warmup(share=0.4), None, 0.44),
        (Warmup(steps=400), None, 0.44),
        (None, 0.2, 0.2),
        (Warmup(), 0.2, 0.2),
        (Warmup(share=0.1), 0.2, 0.2),
        (Warmup(share=0.3), 0.2, 0.3),
        (None, 0.02, 0.02),
        (Warmup(steps=100), 0.0, 0.1),
    ],
)
def test_nothing_is_compared_before_what_is_known_of_the_warm_up(
    warmup: Warmup | None, asked_for: float | None, start: float
) -> None:
    hopeless, settings = falling(2.9), PruningSettings(warmup=asked_for)
    peers = [*replicates(), *(curve(n, falling(1.0 + n / 10)) for n in range(2, 5))]
    ends = [n for n in range(50) if asked(curve(1, hopeless, until=n / 50, warmup=warmup), peers, settings=settings)]
    assert ends[0] / 50 == start and ends == list(range(ends[0], 50))


def test_near_the_incumbent_two_reports_after_a_long_warm_up_are_waited_for() -> None:
    for warmup in (Warmup(share=0.4), Warmup(steps=400)):
        assert asked(curve(1, falling(2.5), until=0.44, warmup=warmup), replicates(), "near") is None
        assert asked(curve(1, falling(2.5), until=0.46, warmup=warmup), replicates(), "near") is not None


@pytest.mark.parametrize(
    ("warmup", "settings", "start"),
    [
        (None, AUTO, 0.25),
        (Warmup(), AUTO, 0.25),
        (Warmup(share=0.2), AUTO, 0.32),
        (Warmup(steps=200), AUTO, 0.32),
        (Warmup(share=0.2), PruningSettings(warmup=0.2), 0.4),
    ],
)
def test_divergence_waits_as_long_after_a_warm_up_as_where_none_is_named(
    warmup: Warmup | None, settings: PruningSettings, start: float
) -> None:
    def away(share: float) -> float:
        return 3.0 + 5 * share

    runs = [curve(1, away, until=n / 50, warmup=warmup, schedule=("cosine",)) for n in range(50)]
    ended = [run for run in runs if asked(run, replicates(("constant",)), settings=settings)]
    assert ended[0].points[-2][0] == pytest.approx(TOTAL * start, abs=19)
    assert ended[0].points[-2][0] >= TOTAL * start


def test_reports_at_other_steps_are_compared_at_the_same_step() -> None:
    coarse = [Curve(0, ((0.0, 3.0), (1000.0, 1.0)), ended=True)]
    assert coarse[0].at(250.0) == 2.5
    assert (coarse[0].at(1100.0), coarse[0].at(-1.0)) == (None, None)
    run = Curve(1, ((0.0, 3.0), (300.0, 2.95), (333.0, 2.95)))
    pruning = asked(run, coarse, "near")
    assert pruning is not None and pruning.reference == pytest.approx(3.0 - 2 * 0.333)


def test_nothing_has_ended_or_been_reported() -> None:
    assert asked(Curve(1, ()), replicates()) is None
    assert asked(curve(1, falling(2.5), until=0.5), []) is None
    assert asked(curve(1, falling(2.5), until=0.5), [curve(0, falling(1.0), until=0.6)]) is None


def study(more: dict[str, Scalar] | None = None, **pruning: object) -> Study:
    parameters = {"lr": 0.001, "lr_scheduler": "cosine", "warmup_ratio": 0.1, "max_steps": 100, "weight_decay": 0.1}
    parameters |= more or {}
    space = {"lr": {"levels": [0.01]}}
    data = study_data(parameters=parameters, space=space, locked=[], search={"pruning": pruning})
    return Study.model_validate(data | {"launcher": data["launcher"] | {"dry_run": {}}})


def test_the_parameters_that_shape_a_curve_are_told_by_their_names_or_declared() -> None:
    parameters = study().parameters
    assert schedule_of(study(), parameters) == ("cosine", 100, 0.1), "not the weight decay"
    assert schedule_of(study(schedule_parameters=["weight_decay"]), parameters) == (0.1,)
    assert schedule_of(study(schedule_parameters=[]), parameters) == ()
    assert warmup_of(study(), parameters) == Warmup(share=0.1)
    assert warmup_of(study(warmup_parameter="max_steps"), parameters) == Warmup(steps=100)


@pytest.mark.parametrize(
    ("parameters", "warmup"),
    [
        ({}, None),
        ({"lr_scheduler_type": "constant_with_warmup"}, None),
        ({"warmup": 0}, Warmup()),
        ({"warmup": 0.1}, Warmup(share=0.1)),
        ({"warmup": 1}, Warmup(share=1)),
        ({"warmup": 200}, Warmup(steps=200)),
        ({"warmup_steps": 0}, Warmup()),
        ({"warmup_steps": 1}, Warmup(steps=1)),
        ({"warmup_steps": 1.0}, Warmup(steps=1)),
        ({"warmup_steps": 100}, Warmup(steps=100)),
        ({"warmup_steps": 0.03}, Warmup(share=0.03)),
        ({"lr_warmup_iters": 1}, Warmup(steps=1)),
        ({"warm_up_iterations": 1}, Warmup(steps=1)),
        ({"WarmupUpdates": 1}, Warmup(steps=1)),
        ({"warmup_ratio": 0.03}, Warmup(share=0.03)),
        ({"warmup_ratio": 1}, Warmup(share=1)),
        ({"lr-warmup-fraction": 1.0}, Warmup(share=1)),
        ({"warmup_step_rate": 0.05}, Warmup(share=0.05)),
        ({"warmup_ratio": 0.03, "warmup_steps": 0}, Warmup(share=0.03)),
        ({"warmup_ratio": 0.03, "warmup_steps": 20}, Warmup(share=0.03, steps=20)),
        ({"warmup_ratio": 0.03, "warmup_steps": -1}, Warmup(share=0.03)),
        ({"warmup_steps": -1}, None),
        ({"warmup_steps": "auto"}, None),
        ({"warmup_ratio": 3}, None),
        ({"warmup": True}, None),
        ({"warmup": math.nan}, None),
        ({"warmup": math.inf}, None),
        ({"warmup_epochs": 0}, Warmup()),
        ({"warmup_epochs": 1}, None),
        ({"warmup_epochs": 5, "warmup_steps": 0}, None),
        ({"warmup_epochs": 5, "warmup_steps": 200}, Warmup(steps=200)),
        ({"warmup_lr": 1e-6, "warmup_momentum": 0.8, "profiler_warmup_steps": 0}, None),
    ],
)
def test_a_warm_up_is_read_in_the_unit_of_its_name(parameters: dict[str, Scalar], warmup: Warmup | None) -> None:
    assert warmup_of(study(), parameters) == warmup


@pytest.mark.parametrize(
    ("name", "value", "warmup"),
    [
        ("ramp_steps", 1, Warmup(steps=1)),
        ("ramp_ratio", 1, Warmup(share=1)),
        ("ramp", 0, Warmup()),
        ("ramp", 0.2, Warmup(share=0.2)),
        ("ramp", 30, Warmup(steps=30)),
        ("ramp", "auto", None),
        ("ramp_epochs", 2, None),
    ],
)
def test_a_declared_warm_up_counts_alone_and_in_the_unit_of_its_name(
    name: str, value: Scalar, warmup: Warmup | None
) -> None:
    lab = study({name: value, "warmup_steps": 700}, warmup_parameter=name)
    assert warmup_of(lab, lab.parameters) == warmup


def test_the_longest_of_share_and_steps_is_known_once_the_steps_are() -> None:
    both = Warmup(share=0.03, steps=20)
    assert (both.end(100), both.end(1000)) == (20, 30)


def test_a_name_that_is_no_parameter_is_refused() -> None:
    with pytest.raises(ValueError, match="is not among parameters"):
        study(schedule_parameters=["sheduler"])
    with pytest.raises(ValueError, match="is not among parameters"):
        study(warmup_parameter="wramup")
    with pytest.raises(ValueError, match="belongs to a metric of its own"):
        study(direction="maximize")


def test_a_pruned_run_is_neither_a_failure_nor_a_value() -> None:
    lab = study()
    baseline = [
        Trial(0, dict(lab.parameters), {}, seed, Phase.BASELINE, "measured", 1.0 + seed / 100) for seed in range(3)
    ]
    behind = Trial(1, {**lab.parameters, "lr": 0.01}, {"lr": 0.01}, 0, Phase.SCREEN, "pruned", 0.5)
    (cell,) = (cell for cell in cells_of([*baseline, behind]) if cell.number == 1)
    assert (cell.values, cell.failures, cell.sound, cell.pending) == ((), 0, False, False)
    verdict = judge(lab, History(trials=(*baseline, behind)), 1)
    assert verdict is not None and (verdict.kind, verdict.label) == (VerdictKind.PRUNED, "clearly behind")
    assert verdict.effect is None, "an estimate, however good, is no evidence"
