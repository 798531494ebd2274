"""What is measured of a study before anything runs: its data, its effective batch, the memory a run needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from nightlab.agents.preflight import Site, fault_at
from nightlab.configs.data import DataSettings
from nightlab.configs.study import Scalar, Study
from nightlab.errors import ConfigError, Fault
from nightlab.tools.backends.gpus import gpu_memory_bytes
from nightlab.tools.datasets.figures import DataFigures
from nightlab.tools.datasets.findings import Finding, data_findings
from nightlab.tools.datasets.measuring import measure_data
from nightlab.tools.datasets.sources import sources_of
from nightlab.tools.sizing.batch import effective_batch, names_of_batch
from nightlab.tools.sizing.configuration import Configuration, configuration_of
from nightlab.tools.sizing.fitting import Fit, fit
from nightlab.tools.sizing.memory import GIB
from nightlab.tools.sizing.planning import plan_of
from nightlab.tools.sizing.shapes import shape_of

__all__ = ["gpu_memory", "measured_data", "measured_sizes", "measures", "preflight_measures"]

TIGHT = 0.9
"""Share of a GPU's memory from which an estimate counts as tight."""
PRETRAINING = frozenset({"cpt", "pretrain", "pt"})


def gpu_memory(study: Study) -> int | None:
    """Bytes of one GPU of the study's, as it says or the driver tells; None where there is none, or nothing tells."""
    stated = study.backend.gpu_memory_bytes
    return gpu_memory_bytes(study.backend.gpus) if stated is None and study.backend.gpus else stated


def measures(study: Study, root: Path) -> tuple[Finding, ...]:
    """Every finding about data and sizes; paths are below `root`. What cannot be measured any more is said to be so."""
    try:
        data = measured_data(study, root)
    except ConfigError as error:
        data = [Finding("data", f"Not measured: {fault.message}.") for fault in error.faults]
    return (*data, *measured_sizes(study, root))


def measured_data(study: Study, root: Path) -> list[Finding]:
    """Findings about the study's data; none where it names none. Raises ConfigError for data that cannot be read."""
    if not study.data.train_names and not study.data.eval_names:
        return []
    configuration = configuration_of(study, root)
    figures = _figures(
        study.data.model_dump_json(exclude_unset=True),
        root,
        _window(study, configuration),
        study.base_model,
        _stamps(study.data, root),
    )
    return data_findings(
        figures,
        thinking=configuration.switch("enable_thinking"),
        is_packed=configuration.switch("packing") is True,
        is_pretraining=bool(PRETRAINING & set(configuration.method.split("_"))),
    )


@lru_cache(maxsize=2)
def _figures(
    settings: str,
    root: Path,
    window: int | None,
    base_model: str,
    stamps: tuple[tuple[str, int, int], ...],
) -> DataFigures:
    """Kept while no file changes: large data take seconds, and documents are written several times a night."""
    return measure_data(DataSettings.model_validate_json(settings), root, window=window, base_model=base_model)


def _stamps(settings: DataSettings, root: Path) -> tuple[tuple[str, int, int], ...]:
    """Path, size and time of last change of every file."""
    sources = [source for side in ("train", "eval") for source in sources_of(settings, root, side)]
    files = [(file, file.stat()) for source in sources for file in source.files]
    return tuple((str(file), stat.st_size, stat.st_mtime_ns) for file, stat in files)


def _window(study: Study, configuration: Configuration) -> int | None:
    """The most tokens a row may have."""
    return configuration.number("cutoff_len") or study.sizes.sequence_length


def measured_sizes(study: Study, root: Path) -> list[Finding]:
    """Findings about effective batch and memory, as far as the parameters tell them."""
    found = []
    if batch := effective_batch(configuration_of(study, root)):
        text = f"Effective batch {batch} (world size × per-device batch × accumulation)."
        found.append(Finding("training", text))
    if memory := _fit(study, root):
        text, is_tight = f"A run needs {memory}.", memory.share > TIGHT
        found.append(Finding("resources", text, ("memory_tight",) * is_tight, is_loud=not memory.fits))
        found += [*_too_large(study, root)] if memory.fits else []
    return found


def _fit(study: Study, root: Path, parameters: Mapping[str, Scalar] | None = None) -> Fit | None:
    """A run against one GPU; None where there is none, or where shape, batch or window are not told."""
    device = gpu_memory(study)
    if device is None:
        return None
    configuration = configuration_of(study, root, parameters)
    window = _window(study, configuration)
    plan, sparing = (plan_of(configuration, window, root, sparing=sparing) for sparing in (False, True))
    shape = shape_of(study.base_model, root, study.sizes.model_parameters)
    return fit(shape, plan, device, sparing) if shape and plan else None


def _too_large(study: Study, root: Path) -> Iterator[Finding]:
    """Values to try that would not fit: of each factor the one that comes nearest."""
    for name, factor in study.space.items():
        changes = [factor.setting(label, study.parameters) for label in factor.settings or {}]
        changes += [{name: value} for value in factor.values]
        fits = [(changed, _fit(study, root, {**study.parameters, **changed})) for changed in changes]
        beyond = [(memory.share, changed, memory) for changed, memory in fits if memory and not memory.fits]
        if beyond:
            _, changed, memory = min(beyond, key=lambda one: one[0])
            values = ", ".join(f"{one} {value}" for one, value in changed.items())
            yield Finding("resources", f"With {values} a run needs {memory}.", is_loud=True)


def preflight_measures(site: Site) -> tuple[list[Fault], list[str]]:
    """What stops a study before it starts, and what a person should know of it."""
    study, root = site.study, site.paths.root
    faults: list[Fault] = []
    found: list[Finding] = []
    try:
        found += measured_data(study, root)
    except ConfigError as error:
        faults += [fault if fault.file else replace(fault, file=site.file) for fault in error.faults]
    memory = _fit(study, root)
    if memory and memory.is_hopeless:
        faults.append(_hopeless(site, memory))
    else:
        found += measured_sizes(study, root)
    return faults, [finding.text for finding in found if finding.is_loud]


def _hopeless(site: Site, memory: Fit) -> Fault:
    names = names_of_batch(configuration_of(site.study, site.paths.root))
    known = names is not None and names.per_device in site.study.parameters
    key = f"parameters.{names.per_device}" if names and known else "backend.gpu_memory"
    message = f"a run cannot fit: it needs at least {memory.least}, and a GPU has {memory.device / GIB:.0f} GiB"
    nearest = memory.nearest or "take a smaller model"
    return fault_at(site, key, message, f"{nearest[:1].lower()}{nearest[1:]}; or correct backend.gpu_memory")
