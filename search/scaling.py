"""What a scaling law predicts for a pretraining run: Step Law, arXiv 2503.04715."""

from __future__ import annotations

from nightlab.configs.study import Study

__all__ = ["law_values", "step_law_batch_tokens", "step_law_learning_rate"]


def step_law_learning_rate(model_parameters: float, training_tokens: float) -> float:
    """The best peak learning rate of AdamW for a model of so many parameters (embeddings not counted) and tokens."""
    return float(1.79 * model_parameters**-0.713 * training_tokens**0.307)


def step_law_batch_tokens(training_tokens: float) -> float:
    """The best batch size in tokens."""
    return float(0.58 * training_tokens**0.571)


def law_values(study: Study) -> dict[str, float]:
    """Parameter → the value the law predicts; only for pretraining, and for what `sizes` and the space tell.

    A factor is known by its technique (`lr`, `eff_batch`), or by the catalog's name of its parameter.
    """
    sizes = study.sizes
    if study.method.split("-")[0] != "pretrain" or sizes.training_tokens is None:
        return {}
    found: dict[str, float] = {}
    if sizes.model_parameters is not None:
        lr = step_law_learning_rate(sizes.model_parameters, sizes.training_tokens)
        found |= dict.fromkeys(_factors(study, "lr", "learning_rate"), lr)
    if sizes.sequence_length is not None:
        batch = step_law_batch_tokens(sizes.training_tokens) / sizes.sequence_length
        found |= dict.fromkeys(_factors(study, "eff_batch", "effective_batch"), batch)
    return found


def _factors(study: Study, technique: str, parameter: str) -> list[str]:
    name = study.catalog.parameters.get(parameter, parameter)
    return [one for one in study.parameters if one == name or _technique(study, one) == technique]


def _technique(study: Study, name: str) -> str | None:
    factor = study.space.get(name)
    return factor.technique if factor else None
