"""What a framework calls the study's parameters: by the study's own map, the framework's names, or the catalog's."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from nightlab.configs.study import Study
from nightlab.knowledge.catalog import Catalog, load_catalog

__all__ = ["EFFECTIVE_BATCH", "ROLL_TRAINED", "Names", "catalog_keys"]

EFFECTIVE_BATCH = "effective_batch"
"""The catalog's name for examples per update; frameworks have it as a product of three."""

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")

# Where ROLL repeats a part for each of its workers, a catalog key that begins with one of these stands in all of them.
_ROLL_PARTS = {
    "model_args": ("actor_train", "actor_infer"),
    "training_args": ("actor_train",),
    "data_args": ("actor_train",),
    "generating_args": ("actor_infer",),
}
ROLL_TRAINED = {"sft": "sft_train", "distill": "student", "distill_vl": "student", "onpolicy_distill": "student_train"}
"""The worker that is trained, where it is not `actor_train`."""


class Names:
    """Translates the names of one study for one framework. `known`: whether the framework has such an argument."""

    def __init__(self, study: Study, known: Callable[[str], bool], catalog: Catalog | None = None) -> None:
        self._framework, self._task, self._known = study.launcher.kind, study.launcher.task, known
        self._own = {own: name for name, own in study.catalog.parameters.items()}
        self._keys = catalog_keys(self._framework) if catalog is None else _keys_of(catalog, self._framework)

    def keys_of(self, name: str) -> tuple[str, ...]:
        """The framework's keys for a parameter of the study; its own name where nothing translates it."""
        named = self._own.get(name)
        if named is None and self._known(name):
            return (name,)
        # A map of the study may lead to the framework's own name as well.
        key = self._keys.get(named or name, named or name)
        return self._in_workers(key) if self._framework == "roll" else (key,)

    def _in_workers(self, key: str) -> tuple[str, ...]:
        """The places of a key that ROLL has once for each of its workers."""
        trained = ROLL_TRAINED.get(self._task or "", "actor_train")
        if key.startswith("actor_train."):
            return (f"{trained}.{key.removeprefix('actor_train.')}",)
        if self._known(key):
            return (key,)
        part = next((f"{part}." for part in _ROLL_PARTS if self._known(f"{trained}.{part}.{key}")), "")
        head = (part or key).split(".")[0]
        workers = _ROLL_PARTS.get(head, ()) if trained == "actor_train" else (trained,)
        places = [f"{worker}.{part}{key}" for worker in workers]
        return tuple(place for place in places if self._known(place)) or (key,)


def _keys_of(catalog: Catalog, framework: str) -> dict[str, str]:
    """The catalog's name of a parameter → the framework's; what the catalog tells in words is left out."""
    found: dict[str, str] = {}
    for technique in catalog.techniques:
        written = technique.backend_keys.get(framework, "")
        keys = [part.strip() for part in written.split(",")]
        if not all(_KEY.fullmatch(key) for key in keys):
            continue
        for parameter in technique.params:
            if parameter in keys:
                found.setdefault(parameter, parameter)
            elif len(keys) == len(technique.params) == 1:
                found.setdefault(parameter, keys[0])
    return found


@cache
def catalog_keys(framework: str) -> dict[str, str]:
    """The built-in catalog's name of a parameter → what the framework calls it."""
    return _keys_of(load_catalog(), framework)
