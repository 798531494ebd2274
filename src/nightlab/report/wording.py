"""Effects and values of the objective in words; markdown, HTML and charts say them the same way."""

from __future__ import annotations

from dataclasses import dataclass

from nightlab.knowledge.records import Effect, VerdictKind
from nightlab.report.model import ExperimentRow, Influence, Metric, Noise, Step
from nightlab.report.numbers import decimals_for, fixed, interval, signed

__all__ = ["INFLUENCE_MARKS", "VERDICT_MARKS", "Wording"]

VERDICT_MARKS: dict[VerdictKind, str] = {
    VerdictKind.KEEP: "✔",
    VerdictKind.DISCARD: "–",
    VerdictKind.INCONCLUSIVE: "?",
    VerdictKind.REJECTED: "⊘",
    VerdictKind.FAILED: "✕",
    VerdictKind.PRUNED: "✂",
}
INFLUENCE_MARKS: dict[Influence, str] = {
    "helped": "▲",
    "promising": "△",
    "no effect": "=",
    "hurt": "▼",
    "unknown": "?",
}


@dataclass(frozen=True)
class Wording:
    """Says numbers of one objective with the digits its noise leaves."""

    metric: Metric
    noise: Noise | None

    @property
    def value_decimals(self) -> int:
        deviation = self.noise.deviation if self.noise else None
        return decimals_for(deviation, value=self.noise.mean if self.noise else None)

    def value(self, value: float | None, *, unit: bool = True) -> str:
        """`2.551 bits/byte`."""
        return fixed(value, self.value_decimals, unit=self.metric.unit if unit else "")

    def change(self, effect: Effect | None, *, unit: bool = True) -> str:
        """The metric's own change with its true sign: `−0.321 bits/byte`."""
        if effect is None:
            return "–"
        delta, _, _ = self.metric.change(effect)
        return signed(delta, self.effect_decimals(effect), unit=self.metric.change_unit if unit else "")

    def interval(self, effect: Effect | None) -> str:
        """`−0.351 … −0.291`."""
        if effect is None:
            return "–"
        _, low, high = self.metric.change(effect)
        return interval(low, high, self.effect_decimals(effect))

    def sure(self, effect: Effect) -> str:
        """`95 % interval −0.351 … −0.291`, or that there is none."""
        if effect.low is None or effect.high is None:
            return "no interval: too few runs"
        return f"{self.confidence(effect)} interval {self.interval(effect)}"

    def both(self, effect: Effect) -> str:
        """`−0.321 bits/byte, 95 % interval −0.351 … −0.291`."""
        return f"{self.change(effect)}, {self.sure(effect)}"

    def step(self, step: Step) -> str:
        """`against 07: width 64 → 128, −0.021 bits/byte, 95 % interval −0.031 … −0.011`."""
        what = f"against {step.parent:02d}: {step.title}"
        return f"{what}, {self.both(step.effect)}" if step.effect else f"{what}, not to be told apart"

    def confidence(self, effect: Effect) -> str:
        return f"{effect.confidence * 100:.3g} %"

    def least(self) -> str:
        """The smallest effect worth having, `0.02 bits/byte`."""
        text = f"{self.metric.min_effect:g}"
        return f"{text} {self.metric.change_unit}" if self.metric.change_unit else text

    def relative(self, effect: Effect) -> str:
        """`−11.2 %` of the baseline; empty where a share says nothing."""
        if self.noise is None or self.noise.mean <= 0 or self.metric.unit == "%":
            return ""
        share = 100 / self.noise.mean
        delta, low, high = self.metric.change(effect)
        half_width = (high - low) / 2 * share if low is not None and high is not None else None
        return signed(delta * share, min(decimals_for(half_width, value=delta * share), 2), unit="%")

    def effect_decimals(self, effect: Effect) -> int:
        half_width = (effect.high - effect.low) / 2 if effect.low is not None and effect.high is not None else None
        deviation = self.noise.deviation if self.noise else None
        # On a metric that repeats exactly the interval has no width.
        return decimals_for(half_width or deviation, value=effect.delta)

    def before_and_after(self, row: ExperimentRow) -> str:
        """`2.872 → 2.551 bits/byte`: the baseline behind the effect, and the experiment."""
        if row.effect is None or row.mean is None:
            return self.value(row.mean)
        delta, _, _ = self.metric.change(row.effect)
        decimals = self.effect_decimals(row.effect)
        after = fixed(row.mean, decimals, unit=self.metric.unit)
        # The baseline's mean on the very seeds of the effect, so that the three numbers add up.
        return f"{fixed(row.mean - delta, decimals)} → {after}"
