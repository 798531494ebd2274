"""The study file: what a person declares, one pydantic model a section, a docstring under each field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from nightlab.configs.approvals import Approvals
from nightlab.configs.brain import BrainSettings
from nightlab.configs.budget import Budget
from nightlab.configs.checkpoints import CheckpointSettings
from nightlab.configs.code import CodeSettings, problems_of_code
from nightlab.configs.data import DataSettings
from nightlab.configs.disk import DiskSettings
from nightlab.configs.failures import Failures
from nightlab.configs.fidelity import FidelitySettings, problems_of_fidelity
from nightlab.configs.launcher import GIVEN_PLACEHOLDERS, LauncherSettings, ParameterPassing, placeholders_in
from nightlab.configs.levels import spread, steps_of
from nightlab.configs.metric_source import MetricSource
from nightlab.configs.notify import Notify
from nightlab.configs.prices import Prices
from nightlab.configs.problems import Location, Problem, refuse
from nightlab.configs.pruning import PruningSettings
from nightlab.configs.reporting import ReportSettings
from nightlab.configs.section import Section
from nightlab.configs.sizes import Sizes
from nightlab.configs.space import problems_of_space
from nightlab.configs.stress import StressCheck, problems_of_stress
from nightlab.configs.units import Duration, Flag, Size
from nightlab.configs.values import RepositoryPath, Scalar
from nightlab.configs.watchdog import Watchdog

__all__ = [
    "GIVEN_PLACEHOLDERS",
    "Approvals",
    "BackendSettings",
    "Budget",
    "CatalogSelection",
    "Factor",
    "Guardrail",
    "LauncherSettings",
    "MetricSource",
    "Objective",
    "ParameterPassing",
    "Prices",
    "RepositoryPath",
    "Scalar",
    "SearchSettings",
    "Study",
    "placeholders_in",
]

Slug = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")]
"""Lower-case letters, digits and inner hyphens, 40 characters at most: safe in branch and folder names."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.\-/]*$")]
"""A letter or underscore, then letters, digits and `_ . - /`."""


class Objective(Section):
    """What is to be improved."""

    metric: Name
    """Name of the metric as the training command reports it."""
    direction: Literal["minimize", "maximize"]
    """Which way is better. Code reads it from here only; nothing ever guesses it."""
    unit: str = ""
    """Unit for reports, e.g. `bits/byte` or `%`."""
    plausible: tuple[float, float] | None = None
    """Lowest and highest believable value; anything outside is rejected by review."""
    min_effect: Annotated[float, Field(ge=0)]
    """Smallest improvement worth having, in the metric's unit. A win must lie beyond it; a technique whose whole
    interval lies inside ±min_effect is reported as without effect."""

    @model_validator(mode="after")
    def _ordered(self) -> Objective:
        if self.plausible and self.plausible[0] >= self.plausible[1]:
            refuse(Problem("is not [lowest, highest]", ("plausible",), "write the smaller number first"))
        return self


class Guardrail(Section):
    """A bound on a secondary metric that a winner must respect."""

    metric: Name
    """Name of the secondary metric as the training command reports it."""
    min: float | None = None
    """Lowest allowed value."""
    max: float | None = None
    """Highest allowed value."""

    @model_validator(mode="after")
    def _bounded(self) -> Guardrail:
        if self.min is None and self.max is None:
            refuse(Problem("has no bound", (), "give min, max or both"))
        if self.min is not None and self.max is not None and self.min > self.max:
            refuse(Problem("is above max: no value can pass", ("min",), "swap min and max"))
        return self


class Factor(Section):
    """One searchable parameter with the values worth trying besides the baseline's own; or a bundle of parameters."""

    levels: list[Scalar] | None = None
    """Values to try. Numbers are ordered by size; text and booleans are categories."""
    range: tuple[float, float] | None = None
    """Lowest and highest value, instead of levels; the lab tries `steps` values spread over it."""
    settings: dict[Name, dict[Name, Scalar]] | None = None
    """A bundle, instead of levels: several parameters that only make sense together, tried as one variable. Each
    setting has a name and says which parameters it changes, e.g. `{long_cosine: {scheduler: cosine, warmup: 0.1}}`;
    what it leaves out stays as in `parameters`. The factor's own name is free and no parameter's."""
    steps: Annotated[int, Field(ge=2, le=9)] | None = None
    """How many values of a range to try. Without it 3; on a log scale so many that each is about twice the last."""
    scale: Literal["linear", "log"] = "linear"
    """How a range is spread and how distances between levels are judged."""
    integer: Flag = False
    """Only whole numbers of a range."""
    categorical: Flag = False
    """Treat numbers as unordered categories."""
    technique: str | None = None
    """The catalog entry this factor belongs to (`nightlab catalog list`); gives tier, prior and source."""
    tier: Annotated[int, Field(ge=1, le=6)] | None = None
    """1 directly affects the result … 6 long shot; overrides the catalog's. Without both it is 3."""
    requires: dict[str, Scalar] = Field(default_factory=dict)
    """Makes the factor conditional: it is tried only in configurations with these values of other parameters or
    bundles, e.g. `{optimizer: adam}`; with any other value it means nothing and stays as in `parameters`."""

    @property
    def values(self) -> list[Scalar]:
        """The levels, or the range's values in ascending order; none for a bundle."""
        if self.range is None:
            return list(self.levels or ())
        steps = self.steps or steps_of(*self.range, self.scale)
        return [*spread(*self.range, steps, self.scale, integer=self.integer)]

    @property
    def parameters_set(self) -> list[str]:
        """The parameters a bundle changes, each once; none for a factor of one parameter."""
        return list(dict.fromkeys(name for setting in (self.settings or {}).values() for name in setting))

    def setting(self, label: str, parameters: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """All parameters of a bundle at one of its settings: what it leaves out is as in `parameters`."""
        base = {name: parameters[name] for name in self.parameters_set if name in parameters}
        return {**base, **(self.settings or {})[label]}

    @model_validator(mode="after")
    def _one_way(self) -> Factor:
        problems = []
        given = [key for key in ("levels", "range", "settings") if getattr(self, key) is not None]
        if len(given) > 1:
            problems.append(Problem(f"has both {' and '.join(given)}", (), "keep one of them"))
        if not given:
            problems.append(Problem("has no values to try", (), "give levels: [...] or range: [lowest, highest]"))
        if self.levels == []:
            problems.append(Problem("is empty", ("levels",), "list the values to try besides the baseline's"))
        if self.settings == {}:
            mend = "name the settings to try, e.g. {long_cosine: {scheduler: cosine, warmup: 0.1}}"
            problems.append(Problem("is empty", ("settings",), mend))
        if self.range and self.range[0] >= self.range[1]:
            problems.append(Problem("is not [lowest, highest]", ("range",), "write the smaller number first"))
        elif self.range and self.scale == "log" and self.range[0] <= 0:
            problems.append(Problem("a log scale needs a range above 0", ("range",), "raise it or use scale: linear"))
        if self.range and self.integer and not all(end.is_integer() for end in self.range):
            problems.append(Problem("is not of whole numbers", ("range",), "round it or take integer out"))
        if problems:
            refuse(*problems)
        return self


class BackendSettings(Section):
    """Where jobs run."""

    kind: Literal["local"] = "local"
    """`local`: processes on this machine."""
    slots: Annotated[int, Field(ge=1, le=512)] = 1
    """Jobs at the same time."""
    gpus: list[int | str] = Field(default_factory=list)
    """GPU ids to share out over the slots; each job sees only its own through CUDA_VISIBLE_DEVICES."""
    gpu_memory_bytes: Size | None = Field(default=None, alias="gpu_memory")
    """Memory of one GPU, e.g. `80GB`, to tell before the start whether a run fits; without it the driver is asked."""
    threads_per_job: Annotated[int, Field(ge=1)] | None = None
    """Value of OMP_NUM_THREADS and its like for each job; without it cores ÷ slots."""
    timeout_seconds: Duration | None = Field(default=None, alias="timeout")
    """A run that takes longer is ended, whole process tree, and counted as failed."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables set for each job."""
    pass_env: list[str] = Field(default_factory=list)
    """Names of further variables of your shell that jobs may see; all others but a short allow-list are withheld."""

    @property
    def gpus_per_job(self) -> int:
        """GPUs that each job has to itself."""
        return len(self.gpus) // self.slots

    @model_validator(mode="after")
    def _shares(self) -> BackendSettings:
        if self.gpus and len(self.gpus) < self.slots:
            message = f"{self.slots} slots need at least {self.slots} GPUs; {len(self.gpus)} are listed"
            refuse(Problem(message, ("gpus",), f"list more or set slots: {len(self.gpus)}"))
        return self


class CatalogSelection(Section):
    """Which techniques of the catalog join the space by themselves."""

    file: str | None = None
    """A catalog file of your own, read on top of the built-in one."""
    match: Flag = False
    """Add a factor for every catalog technique of this method whose parameters the baseline names."""
    include: list[str] = Field(default_factory=list)
    """Technique ids to add."""
    exclude: list[str] = Field(default_factory=list)
    """Technique ids never to add."""
    parameters: dict[str, str] = Field(default_factory=dict)
    """The catalog's parameter name → your parameter name, where they differ, e.g. `{learning_rate: lr}`."""


class SearchSettings(Section):
    """How the lab searches and when it believes."""

    seed: int = 0
    """Seed of the search itself: the same study, ledger and seed give the same proposals."""
    baseline_replicates: Annotated[int, Field(ge=1, le=20)] = 3
    """Seeds the baseline is run with: they measure the noise. With 1 nothing is known of it until something is
    repeated."""
    replicate_ties: Annotated[int, Field(ge=0, le=5)] = 1
    """Further seeds for each of the configurations that may be the best, twice as many for the first two, before the
    finalists are chosen; 0: none, and chance chooses among equals."""
    combine: Flag = True
    """Combine the winners in an orthogonal array."""
    combine_factors: Annotated[int, Field(ge=2, le=15)] = 7
    """How many of the best single changes enter the array at most."""
    confirm: Flag = True
    """Confirm the best on fresh seeds. Without it the whole budget goes into finding something, and nothing is
    claimed."""
    confirm_seeds: Annotated[int, Field(ge=2, le=20)] = 3
    """Fresh seeds for each finalist and for the baseline beside it. A win stands on all of them: the runs for one
    finalist are always held back, and where time or money runs out before, it is reported as not confirmed."""
    confirm_seeds_most: Annotated[int, Field(ge=2, le=40)] = 8
    """A finalist that is neither confirmed nor out after `confirm_seeds` goes on up to this many fresh seeds, as far as
    the budget reaches."""
    confirm_candidates: Annotated[int, Field(ge=1, le=5)] = 2
    """Finalists to confirm."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """Confidence of intervals. A night reports a win that is none with a probability of at most one minus this, however
    many finalists are looked at and how often."""
    pruning: PruningSettings = PruningSettings()
    """When a running run that falls behind is ended before its time."""
    fidelity: FidelitySettings | None = None
    """A cheaper kind of run to look at single changes with; what it favours is run whole before it is believed."""


class Study(Section):
    """One research goal on one training repository."""

    study: Slug
    """The study's name; its folder is `.nightlab/<study>/`."""
    goal: str = ""
    """What you want, in your own words; it heads the report."""
    scenario: Slug
    """Short word for the task, in branch names."""
    method: Slug
    """Training method, in branch names and for the catalog: sft-lora, sft-full, dpo, kto, grpo, cpt, pretrain …"""
    base_model: str
    """The model the study starts from. Always locked."""
    objective: Objective
    """What is to be improved."""
    guardrails: list[Guardrail] = Field(default_factory=list)
    """Bounds on secondary metrics that a winner must respect."""
    stress: list[StressCheck] = Field(default_factory=list)
    """Commands that measure a confirmed finalist, and the baseline beside it, under load or on harder data, with the
    bounds it must hold to be kept."""
    pareto: dict[Name, Literal["minimize", "maximize"]] = Field(default_factory=dict)
    """Secondary metrics, each with its better direction (`{latency_ms: minimize}`): the report lists the experiments
    that no other one beats in the objective and all of these. They change neither the search nor a verdict."""
    metrics: dict[Name, MetricSource] = Field(default_factory=dict)
    """Where each metric is read from; a metric not listed is read from `name: value` lines."""
    parameters: dict[Name, Scalar]
    """The baseline: every parameter the lab may see, with its present value."""
    space: dict[Name, Factor] = Field(default_factory=dict)
    """The factors: parameters the lab may change, with the values worth trying."""
    forbid: list[dict[Name, Scalar]] = Field(default_factory=list)
    """Combinations no configuration may hold all at once, e.g. `[{precision: fp16, optimizer: adam8bit}]`; names are
    those of parameters and bundles."""
    locked: list[Name] = Field(default_factory=list)
    """Parameters no experiment may change."""
    frozen: list[RepositoryPath] = Field(default_factory=list)
    """Files or folders no experiment may change (evaluation data, metric code); their hashes are checked."""
    same: list[Name] = Field(default_factory=list)
    """Metrics that every run must report as the baseline does, e.g. `[eval_tokens, train_steps]`: on how much it was
    measured and trained. A run that reports another value is rejected."""
    inputs: list[RepositoryPath] = Field(default_factory=list)
    """What a run needs but git does not hold (data, weights, environments): linked into each worktree."""
    launcher: LauncherSettings
    """What starts a run."""
    backend: BackendSettings = BackendSettings()
    """Where jobs run."""
    catalog: CatalogSelection = CatalogSelection()
    """Which techniques of the catalog join the space by themselves."""
    data: DataSettings = DataSettings()
    """The data of the study, for the diagnosis to measure."""
    sizes: Sizes = Sizes()
    """How large model and data are, for what scaling laws predict."""
    search: SearchSettings = SearchSettings()
    """How the lab searches and when it believes."""
    budget: Budget
    """What the study may use."""
    prices: Prices = Prices()
    """What runs cost, for a budget of money."""
    brain: BrainSettings = BrainSettings()
    """Who proposes, explains and reviews; verdicts are computed in any case."""
    code: CodeSettings = CodeSettings()
    """Which changes to the code a language model may propose."""
    approvals: Approvals = Approvals()
    """Which decisions wait for a person."""
    notify: Notify = Notify()
    """Whom the lab tells what."""
    report: ReportSettings = ReportSettings()
    """What is written beside report and table."""
    watchdog: Watchdog = Watchdog()
    """When a running job is ended before its time."""
    failures: Failures = Failures()
    """What happens when runs fail."""
    disk: DiskSettings = DiskSettings()
    """How much of the disk the lab leaves alone."""
    checkpoints: CheckpointSettings = CheckpointSettings()
    """Which of a run's checkpoints stay on the disk once its experiment is judged."""
    secrets: list[str] = Field(default_factory=list)
    """What is never written anywhere: names of variables of your shell (`NAME` or `env:NAME`) or values themselves, of
    at least 6 characters. Variables whose names look like keys (`…_TOKEN`, `…_PASSWORD`) are secret already."""
    lessons: str | None = None
    """Path of the lessons file; by default `.nightlab/lessons.jsonl`, shared by all studies of the repository."""
    author: str = ""
    """Who runs the study, for lessons shared by a team."""

    @property
    def maximize(self) -> bool:
        return self.objective.direction == "maximize"

    def source_of(self, metric: str) -> MetricSource:
        """Where `metric` is read from: as declared, else `name: value` lines."""
        return self.metrics.get(metric, MetricSource())

    def reaches_runs(self, parameter: str) -> bool:
        """Whether a run notices what the parameter is set to."""
        launcher = self.launcher
        return (
            launcher.is_framework
            or launcher.parameters.via != "template"
            or parameter in placeholders_in(launcher.command)
        )

    def plain(self, assignment: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """The parameters' values that `assignment` stands for: a bundle's setting is those of its parameters."""
        found: dict[str, Scalar] = {}
        for name, value in assignment.items():
            factor = self.space.get(name)
            bundled = factor is not None and factor.settings is not None
            found |= factor.setting(str(value), self.parameters) if factor and bundled else {name: value}
        return found

    @property
    def metric_names(self) -> list[str]:
        """Objective first, then guardrails and every other declared metric, without repeats."""
        rails = [rail.metric for rail in self.guardrails]
        return list(dict.fromkeys([self.objective.metric, *rails, *self.pareto, *self.same, *self.metrics]))

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        problems = [*problems_of_space(self), *self._problems_of_names(), *self._problems_of_budget()]
        # A framework has parameters of its own.
        known = [*self.parameters, *(self.code.smoke if self.launcher.is_framework else ())]
        written = self.launcher.written
        problems += problems_of_code(self.code, parameters=known, frozen=self.frozen, written=written)
        problems += problems_of_stress(self.stress, self.parameters, confirms=self.search.confirm)
        problems += problems_of_fidelity(self)
        if problems:
            refuse(*problems, across_sections=True)
        return self

    def _problems_of_budget(self) -> list[Problem]:
        """Limits on what nothing is counted by."""
        problems, budget = [], self.budget
        if budget.gpu_hours is not None and not self.backend.gpus:
            mend = "list the GPU ids there, or set another limit"
            problems.append(
                Problem("counts nothing: backend.gpus lists no GPU", ("budget", "gpu_hours"), mend, budget.gpu_hours)
            )
        # Where something else bounds the runs, the calls of language models are reason enough to count money.
        counts_calls = bool(self.prices.models) and budget.bounds_without_money
        is_free = not self.prices.cost_usd(3600, self.backend.gpus_per_job)
        if budget.cost_usd is not None and is_free and not counts_calls:
            mend = "set prices.gpu_hour_usd (with backend.gpus), prices.slot_hour_usd or prices.run_usd"
            at: Location = ("budget", "cost_usd")
            problems.append(Problem("counts nothing: by the prices every run is free", at, mend, budget.cost_usd))
        return problems

    def _problems_of_names(self) -> list[Problem]:
        places: list[tuple[Location, str]] = [(("locked", index), name) for index, name in enumerate(self.locked)]
        if not self.launcher.is_framework:
            places += [(("launcher", "dry_run", name), name) for name in self.launcher.dry_run]
        pruning, at = self.search.pruning, ("search", "pruning")
        places += [((*at, "schedule_parameters", i), name) for i, name in enumerate(pruning.schedule_parameters or ())]
        places += [((*at, "warmup_parameter"), pruning.warmup_parameter)] if pruning.warmup_parameter else []
        mend = "add it to parameters or correct the name"
        problems = [
            Problem("is not among parameters", at, mend, name) for at, name in places if name not in self.parameters
        ]
        if self.objective.metric in self.same:
            at_same: Location = ("same", self.same.index(self.objective.metric))
            problems.append(Problem("is what is to be improved", at_same, "name other metrics", self.objective.metric))
        return problems
