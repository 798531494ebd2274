"""One technique of the catalog: a change worth trying, and what is known of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from nightlab.configs.problems import Problem, refuse
from nightlab.configs.study import Scalar
from nightlab.errors import ConfigError, Fault

__all__ = [
    "CatalogMeta",
    "Evidence",
    "Technique",
    "TechniqueParameter",
    "factor_levels",
    "method_names",
    "prior_effect",
]

Evidence = Literal["source_checked", "secondary_checked", "docs", "seed", "memory", "heuristic"]

# How far a claim of each kind is trusted, best first; only the order matters much.
EVIDENCE_WEIGHTS: dict[Evidence, float] = {
    "source_checked": 1.0,
    "docs": 0.85,
    "secondary_checked": 0.8,
    "seed": 0.8,
    "heuristic": 0.65,
    "memory": 0.6,
}
TIER_WEIGHTS = {1: 0.9, 2: 0.7, 3: 0.6, 4: 0.5, 5: 0.35, 6: 0.2}

MethodName = Annotated[str, AfterValidator(lambda name: name.lower().replace("-", "_"))]
"""A training method as the catalog writes it: `sft_lora`, also where a file says `sft-lora`."""

Values = Annotated[list[Scalar | list[Scalar]], Field(min_length=1)]


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class TechniqueParameter(Entry):
    """One parameter of a technique with the values worth trying."""

    values: Values | None = None
    """Candidates for every method that `by_method` does not name."""
    times: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)] | None = None
    """Instead of values: multiples of the baseline's own. Only of the first of `together`."""
    power: float | None = None
    """Instead of values: the baseline's own times the first of `together`'s multiple to this power."""
    by_method: dict[MethodName, Values] = Field(default_factory=dict)
    """Training method → candidates."""
    scale: Literal["linear", "log"] = "linear"
    """How distances between values are judged."""
    rule: list[str] = Field(default_factory=list)
    """Values that follow from another parameter, in words."""
    needs: dict[str, Scalar] = Field(default_factory=dict)
    """Values of other parameters (the catalog's names) without which this one means nothing."""

    @model_validator(mode="after")
    def _one_way(self) -> TechniqueParameter:
        given = [key for key in ("values", "times", "power") if getattr(self, key) is not None]
        if len(given) != 1:
            message = f"has both {' and '.join(given)}" if given else "has no values to try"
            refuse(Problem(message, (), "give one of values, times, power"))
        if self.by_method and self.values is None:
            refuse(Problem(f"does not go with {given[0]}", ("by_method",), "take one of them out"))
        return self


class Technique(Entry):
    """A change worth trying; what a user's own entry leaves out takes the defaults here."""

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_\-]*$")]
    """Lower-case letters, digits, `_` and `-`."""
    name: Annotated[str, Field(min_length=1)]
    tier: Annotated[int, Field(ge=1, le=6)]
    """1 directly affects the result … 6 long shot."""
    category: str = "own"
    applies_to: Annotated[list[MethodName], Field(min_length=1)]
    """Training methods: `sft_lora`, `dpo`, `pretrain` …"""
    params: dict[str, TechniqueParameter] = Field(default_factory=dict)
    together: list[str] = Field(default_factory=list)
    """Parameters that make sense only all at once: one change for each value of the first, the others at their first
    value. Without it every parameter is a change of its own."""
    backend_keys: dict[str, str] = Field(default_factory=dict)
    """Training framework → what it calls the parameter."""
    effect: str = ""
    """What was reported, in words."""
    source: str = ""
    evidence: Evidence = "heuristic"
    """What the claim rests on."""
    risk: str = ""
    requires: list[str] = Field(default_factory=list)
    """What must hold, in words."""
    needs: dict[str, Scalar] = Field(default_factory=dict)
    """Values of parameters (the catalog's names) without which none of its own means anything."""
    conflicts: list[str] = Field(default_factory=list)
    """Techniques that do not go together with it; holds both ways."""
    constraints: list[str] = Field(default_factory=list)
    """Bounds between parameters, in words."""
    symptoms: list[str] = Field(default_factory=list)
    """Symptoms it may cure."""
    cost: Annotated[float, Field(gt=0)] = 1.0
    """Compute of a run relative to the baseline's."""
    locked: bool = False
    """Only a person may try it."""

    @model_validator(mode="after")
    def _known_together(self) -> Technique:
        for index, name in enumerate(self.together):
            if name not in self.params:
                mend = f"it has {', '.join(self.params)}"
                refuse(Problem(f"{name} is none of its params", ("together", index), mend))
        return self

    @model_validator(mode="after")
    def _sound_rule(self) -> Technique:
        """Multiples stand first of those that belong together, and what follows them behind."""
        first, others = next(iter(self.together), None), self.together[1:]
        by_rule = first is not None and self.params[first].times is not None
        for name, spec in self.params.items():
            if spec.times is not None and (name != first or not others):
                mend = "name it first in together, before those that follow it"
                refuse(Problem("has nothing that follows it", ("params", name, "times"), mend))
            if (spec.power is not None) is not (by_rule and name in others):
                mend = "what stands behind a parameter with times in together has a power, and nothing else has"
                refuse(Problem("follows nothing" if spec.power else "needs a power", ("params", name), mend))
        return self

    @property
    def is_rule(self) -> bool:
        """Whether its values follow from the study's own, all at once."""
        return any(spec.times is not None for spec in self.params.values())

    def needs_of(self, parameter: str) -> dict[str, Scalar]:
        """What must hold for one of its parameters to mean something."""
        return {**self.needs, **self.params[parameter].needs}


class CatalogMeta(Entry):
    """What the words in a catalog mean."""

    version: int
    generated: str
    tiers: dict[int, str]
    evidence: dict[Evidence, str]
    note: str
    symptoms: dict[str, str]
    """Symptom id → how it shows."""


def method_names(method: str) -> tuple[str, ...]:
    """The catalog's names for a study's method, most fitting first.

    `sft-lora` is `sft_lora` and also what holds for `sft`; plain `sft` may be either kind.
    """
    name = method.lower().replace("-", "_")
    stem = name.removesuffix("_lora").removesuffix("_full")
    return (name, stem) if stem != name else (name, f"{name}_lora", f"{name}_full")


def factor_levels(technique: Technique, parameter: str, method: str) -> tuple[Scalar, ...]:
    """The values worth trying for one parameter under a method; empty when they are lists, which no factor can hold,
    and when they follow from the baseline's own (`times`, `power`).

    Where the catalog tells LoRA and full fine-tuning apart and the method does not, the values of both, by size.
    Raises ConfigError for a parameter the technique does not have.
    """
    spec = technique.params.get(parameter)
    if spec is None:
        known = ", ".join(technique.params) or "none"
        raise ConfigError(Fault(f"technique {technique.id} has no parameter {parameter}", mend=f"it has: {known}"))
    exact, *others = method_names(method)
    found = [spec.by_method[name] for name in others if name in spec.by_method]
    values = spec.by_method.get(exact) or [value for part in found for value in part] or spec.values or []
    scalars = [value for value in values if not isinstance(value, list)]
    if len(found) > 1 and exact not in spec.by_method:
        scalars = sorted(scalars, key=lambda value: (isinstance(value, str), value))
    return tuple(dict.fromkeys(scalars))


def prior_effect(technique: Technique) -> float:
    """How useful a technique may be expected to be before anything was tried, in 0..1.

    A heuristic to order trials, no estimate of an effect: the tier's weight times the evidence's, divided by the
    square root of the cost where a run costs more than the baseline's.
    """
    weight = TIER_WEIGHTS[technique.tier] * EVIDENCE_WEIGHTS[technique.evidence]
    return float(weight / max(technique.cost, 1.0) ** 0.5)
