"""The design: what will be tried and what will not. The ledger keeps it, so that planning after a crash is the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from nightlab.agents.brain import Advice
from nightlab.configs.study import Scalar
from nightlab.search.history import RankedFactor

__all__ = ["Design", "read_design", "write_design"]


@dataclass(frozen=True)
class Design:
    """The factors in the order to try them, and the combinations of values no configuration may hold."""

    factors: tuple[RankedFactor, ...] = ()
    forbidden: tuple[dict[str, Scalar], ...] = ()
    advice: Advice | None = None
    """What a language model added to the diagnosis; its own factors are among `factors` once they are taken up."""

    def factor_of(self, parameter: str) -> str:
        """The factor that changes a parameter: a bundle, or the one of its own name."""
        bundles = (factor.name for factor in self.factors for sets in factor.also[:1] if parameter in sets)
        return next(bundles, parameter)

    @property
    def level_count(self) -> int:
        """Values to try, over all factors."""
        return sum(len(factor.levels) for factor in self.factors)


_DESIGN = TypeAdapter(Design)


def write_design(design: Design) -> dict[str, Any]:
    """The design as plain data for the ledger."""
    data: dict[str, Any] = _DESIGN.dump_python(design, mode="json")
    return data


def read_design(data: dict[str, Any] | list[dict[str, Any]] | None) -> Design:
    """The design the ledger holds; an empty one before it is made. Ledgers of version 0.1 hold the factors alone."""
    if data is None:
        return Design()
    return _DESIGN.validate_python({"factors": data} if isinstance(data, list) else data)
