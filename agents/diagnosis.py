"""The seven-dimension diagnosis by rules: from facts to findings and catalog symptoms."""

from __future__ import annotations

import statistics
from dataclasses import replace

import humanize

from nightlab.agents.brain import Diagnosis, Dimension, Facts
from nightlab.agents.curves import fit_symptoms
from nightlab.tools.datasets.findings import About

__all__ = ["diagnose", "loss_symptoms"]

# Shares of the logged curve that are compared, and the relative changes that count. They only order techniques within
# a tier, so their exact values are uncritical.
FEWEST_POINTS = 10
TAIL = 0.1
STILL_FALLING = 0.003
SPIKE = 1.5


def diagnose(facts: Facts) -> Diagnosis:
    return Diagnosis(
        (
            Dimension("Base model", f"`{facts.base_model}`, locked: no experiment changes it."),
            _measured(_data(facts), facts, "data"),
            _measured(_prompt(facts), facts, "prompt"),
            _measured(_training(facts), facts, "training"),
            _measured(_evaluation(facts), facts, "evaluation"),
            _measured(_resources(facts), facts, "resources"),
            _baseline(facts),
        )
    )


def _measured(dimension: Dimension, facts: Facts, about: About) -> Dimension:
    """The dimension with those measured findings that mean something; all of them stand in the report below."""
    found = [one for one in facts.findings if one.about == about and (one.symptoms or one.is_loud)]
    symptoms = dict.fromkeys((*dimension.symptoms, *(symptom for one in found for symptom in one.symptoms)))
    text = " ".join([dimension.finding, *(one.text for one in found)])
    return replace(dimension, finding=text, symptoms=tuple(symptoms))


def _data(facts: Facts) -> Dimension:
    size = humanize.naturalsize(facts.input_bytes or facts.repository_bytes, binary=True)
    where = "declared inputs" if facts.input_bytes else f"the repository's {facts.tracked_files} tracked files"
    named = f" Data parameters: {', '.join(facts.data_parameters)}." if facts.data_parameters else ""
    is_measured = any(one.about == "data" for one in facts.findings)
    looked = "" if is_measured else " What is in them was not looked at: name them under `data`."
    return Dimension("Data quality", f"{size} in {where}.{looked}{named}")


def _prompt(facts: Facts) -> Dimension:
    if facts.prompt_parameters:
        return Dimension("Prompt and template", f"Set by {', '.join(facts.prompt_parameters)}.")
    return Dimension("Prompt and template", "No parameter speaks of a prompt or template.")


def _training(facts: Facts) -> Dimension:
    if not facts.losses:
        return Dimension("Training method", f"{facts.method}. The run logs no training loss, so its curve is unknown.")
    logged = f"{facts.method}. Training loss {facts.losses[0]:.4g} → {facts.losses[-1]:.4g} over "
    if len(facts.losses) < FEWEST_POINTS:
        points = f"{len(facts.losses)} logged point{'s' * (len(facts.losses) > 1)}"
        return Dimension("Training method", f"{logged}{points}, too few to judge the curve by.")
    symptoms = loss_symptoms(facts.losses)
    fit, of_fit = fit_symptoms(facts.losses, facts.held_out_losses)
    words = {
        "slow_convergence": "the loss is still falling at the end",
        "loss_plateau_high": "the loss is flat at the end",
        "loss_spikes": "the loss jumps",
        "loss_diverges": "the loss rises at the end",
    }
    seen = "; ".join(words[s] for s in symptoms) or "the curve shows nothing unusual"
    return Dimension(
        "Training method",
        f"{logged}{len(facts.losses)} logged points: {seen}. {fit}".rstrip(),
        (*symptoms, *of_fit),
    )


def loss_symptoms(losses: tuple[float, ...]) -> tuple[str, ...]:
    """Catalog symptoms of a training-loss curve; too few points say nothing."""
    if len(losses) < FEWEST_POINTS:
        return ()
    width = max(2, round(len(losses) * TAIL))
    last, before = statistics.fmean(losses[-width:]), statistics.fmean(losses[-2 * width : -width])
    symptoms = []
    scale = max(abs(before), 1e-12)
    if (before - last) / scale > STILL_FALLING:
        symptoms.append("slow_convergence")
    elif (last - before) / scale > 10 * STILL_FALLING:
        symptoms.append("loss_diverges")
    else:
        symptoms.append("loss_plateau_high")
    if any(_jumps(losses, point, width) for point in range(len(losses) // 4, len(losses))):
        symptoms.append("loss_spikes")
    return tuple(symptoms)


def _jumps(losses: tuple[float, ...], point: int, width: int) -> bool:
    """Whether the loss at `point` stands far above all of the `width` points before it."""
    before = losses[max(0, point - width) : point]
    return bool(before) and losses[point] > SPIKE * max(before) > 0


def _evaluation(facts: Facts) -> Dimension:
    guarded = (
        f"Frozen and hash-checked: {', '.join(facts.evaluation_frozen)}."
        if facts.evaluation_frozen
        else "Nothing is frozen: an experiment could change its own evaluation. Name the metric code in `frozen`."
    )
    return Dimension("Evaluation", f"`{facts.metric}` in {facts.unit or 'its own unit'}. {guarded}")


def _resources(facts: Facts) -> Dimension:
    gpus = f"{len(facts.gpus)} GPUs" if facts.gpus else "no GPU declared"
    if facts.gpu_memory_bytes:
        gpus += f" of {humanize.naturalsize(facts.gpu_memory_bytes, binary=True)}"
    memory = humanize.naturalsize(facts.memory_bytes, binary=True)
    symptoms: tuple[str, ...] = ()
    text = f"{facts.cores} cores, {memory} memory, {gpus}, {facts.slots} slots."
    peak = facts.baseline_peak_memory_bytes
    if peak:
        text += f" A baseline run peaks at {humanize.naturalsize(peak, binary=True)}."
        if peak * facts.slots > 0.8 * facts.memory_bytes:
            symptoms = ("memory_tight",)
            text += " All slots together come close to the machine's memory."
    return Dimension("Resources", text, symptoms)


def _baseline(facts: Facts) -> Dimension:
    values = facts.baseline_values
    if not values:
        return Dimension("Baseline", "Not measured yet.")
    mean = statistics.fmean(values)
    text = f"{facts.metric} {mean:.6g} {facts.unit}".rstrip() + f" over {len(values)} run{'s' * (len(values) > 1)}"
    symptoms: tuple[str, ...] = ()
    if len(values) > 1:
        spread = statistics.stdev(values)
        text += f", standard deviation between seeds {spread:.3g}"
        if spread > facts.min_effect > 0:
            symptoms = ("seed_variance",)
            text += f", more than the {facts.min_effect:g} worth having"
    if facts.baseline_wall_seconds:
        text += f"; {_duration(facts.baseline_wall_seconds)} a run"
    return Dimension("Baseline", text + ".", symptoms)


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 60 else humanize.precisedelta(round(seconds))
