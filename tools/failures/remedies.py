"""Remedies that are pure configuration: what a retry changes so that the same failure need not come again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nightlab.configs.study import Scalar, Study

__all__ = ["SMALLER_BATCH", "BatchNames", "ChangedRetry", "batch_names", "changed_retry"]

# What frameworks and scripts call them; the more special name first.
_PER_DEVICE = (
    "per_device_train_batch_size",
    "per_gpu_train_batch_size",
    "train_micro_batch_size_per_gpu",
    "micro_batch_size_per_gpu",
    "device_train_microbatch_size",
    "device_batch_size",
    "micro_batch_size",
    "micro_batch",
    "mbs",
    "train_batch_size",
    "batch_size",
)
_ACCUMULATION = (
    "gradient_accumulation_steps",
    "accumulate_grad_batches",
    "grad_accumulation_steps",
    "grad_accum_steps",
    "gradient_accumulation",
    "grad_accumulation",
    "accumulation_steps",
    "accum_steps",
    "grad_accum",
    "gas",
)
_TOTAL = ("effective_batch", "total_batch_size", "global_batch_size", "effective_batch_size", "train_batch_size")

SMALLER_BATCH = frozenset({"cuda_oom", "cublas", "exit_137", "host_oom_kill", "k8s_oomkilled"})
"""Signatures that a smaller per-device batch may cure; it can be made smaller more than once."""

# Below the ports that systems hand out by themselves, away from torch's default 29500.
_FIRST_PORT, _PORTS = 20_000, 9_000


@dataclass(frozen=True)
class BatchNames:
    """Which parameters hold the batch; without `accumulation` the script derives it from the total batch."""

    per_device: str
    accumulation: str | None = None
    total: str | None = None


@dataclass(frozen=True)
class ChangedRetry:
    """What the next attempt runs with."""

    parameters: dict[str, Scalar]
    """The whole configuration."""
    change: str
    """What differs from the failed attempt, in one line for the record."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables to add."""


def changed_retry(
    study: Study, parameters: Mapping[str, Scalar], signature_id: str, *, key: str, names: BatchNames | None = None
) -> ChangedRetry | None:
    """The configuration of the next attempt after a failure with this signature; None where none can be given.

    A locked parameter is never touched and the effective batch never changes. `key` is the next attempt's run key: the
    same key always gives the same retry. `names` says which parameters hold the batch where their names do not.
    """
    if signature_id in SMALLER_BATCH:
        return _smaller_batch(study, parameters, names or batch_names(parameters))
    if make := _ENVIRONMENTS.get(signature_id):
        env, change = make(key)
        return ChangedRetry(dict(parameters), change, env)
    return None


def batch_names(parameters: Mapping[str, Scalar]) -> BatchNames | None:
    """The batch parameters by the names that are usual; None where there is no telling."""
    per_device = _named(parameters, _PER_DEVICE)
    if per_device is None:
        return None
    rest = {name: value for name, value in parameters.items() if name != per_device}
    return BatchNames(per_device, _named(rest, _ACCUMULATION), _named(rest, _TOTAL))


def _named(parameters: Mapping[str, Scalar], usual: tuple[str, ...]) -> str | None:
    """The parameter with the first of the usual names, whatever section it stands in; None when two have it."""
    for word in usual:
        found = [name for name in parameters if _leaf(name) == word]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _leaf(name: str) -> str:
    return name.replace("/", ".").rsplit(".", 1)[-1].replace("-", "_").lower()


def _smaller_batch(study: Study, parameters: Mapping[str, Scalar], names: BatchNames | None) -> ChangedRetry | None:
    """Half the per-device batch (an odd one by its smallest divisor) and as much more accumulation."""
    if names is None:
        return None
    batch = _count(parameters.get(names.per_device))
    divisor = next((number for number in range(2, batch + 1) if batch % number == 0), None)
    if divisor is None:
        return None
    changed: dict[str, Scalar] = {names.per_device: batch // divisor}
    if names.accumulation is not None:
        accumulation = _count(parameters.get(names.accumulation))
        if accumulation < 1:
            return None
        changed[names.accumulation] = accumulation * divisor
    elif names.total is None or _count(parameters.get(names.total)) % batch or not _count(parameters.get(names.total)):
        return None
    if not all(_free(study, name) for name in changed):
        return None
    moves = ", ".join(f"{name} {parameters[name]} → {value}" for name, value in changed.items())
    kept = f"effective batch kept{'' if names.accumulation else f' by {names.total}'}"
    return ChangedRetry({**parameters, **changed}, f"{moves} ({kept})")


def _count(value: Scalar | None) -> int:
    """A whole number; 0 for everything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _free(study: Study, name: str) -> bool:
    """Whether a retry may set a parameter: it is not locked, no rule names its value, and the run hears of it."""
    rules = [study.plain(factor.requires) for factor in study.space.values()] + [study.plain(r) for r in study.forbid]
    return study.reaches_runs(name) and name not in study.locked and not any(name in rule for rule in rules)


def _other_port(key: str) -> tuple[dict[str, str], str]:
    port = _FIRST_PORT + int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % _PORTS
    # torchrun takes its own default from PET_MASTER_PORT; other launchers read MASTER_PORT.
    return dict.fromkeys(("MASTER_PORT", "PET_MASTER_PORT"), str(port)), f"MASTER_PORT {port}"


def _tracker_offline(_key: str) -> tuple[dict[str, str], str]:
    return {"WANDB_MODE": "offline"}, "WANDB_MODE offline"


_ENVIRONMENTS: dict[str, Callable[[str], tuple[dict[str, str], str]]] = {
    "port_in_use": _other_port,
    "tracker_login": _tracker_offline,
}
