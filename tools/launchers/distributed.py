"""A Python command started in several processes: `torchrun`, `accelerate launch` or `deepspeed` in between.

All three are called as modules of the command's own interpreter, so that nothing has to be on the path. Which GPUs they
use is left to CUDA_VISIBLE_DEVICES, which the backend sets for each job.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nightlab.configs.study import Study
from nightlab.errors import LauncherError
from nightlab.tools.launchers.ports import free_port

__all__ = ["in_processes", "processes_of"]


def processes_of(study: Study) -> int:
    """Processes of one run: as declared, else one for each GPU of a job."""
    distributed = study.launcher.distributed
    return (distributed and distributed.processes) or max(1, study.backend.gpus_per_job)


def in_processes(study: Study, words: Sequence[str], *, tree: Path, output: Path) -> list[str]:
    """The command `words` (`python [-m] target …`) in between the launcher that the study names, if any.

    Every run has a port of its own; where `output` is no absolute path nothing is started and none is sought. Raises
    LauncherError.
    """
    distributed = study.launcher.distributed
    if distributed is None:
        return list(words)
    python, *rest = words
    as_module = rest[:1] == ["-m"]
    target = rest[1:] if as_module else rest
    if not target or target[0].startswith("-"):
        what = target[0] if target else "nothing"
        raise LauncherError(f"launcher.command: {what} after Python is no script to start in processes (name one)")
    processes = str(processes_of(study))
    config = str(tree / distributed.config) if distributed.config else None
    match distributed.launcher:
        case "torchrun":
            # By itself it finds a free port, and holds it.
            launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", processes]
        case "accelerate":
            launch = ["accelerate.commands.launch", *(["--config_file", config] if config else [])]
            launch += ["--num_processes", processes, "--num_machines", "1", *_port("--main_process_port", output)]
            # Where it sees no two GPUs it would start one process without a word.
            launch += ["--multi_gpu"] if config is None and processes != "1" else []
        case "deepspeed":
            launch = ["deepspeed.launcher.runner", *(["--hostfile", config] if config else [])]
            # Told how many GPUs, it would take the machine's first ones, whichever are visible.
            launch += [] if study.backend.gpus else ["--num_gpus", processes]
            launch += _port("--master_port", output)
    return [python, "-m", *launch, *(["--module"] if as_module else []), *target]


def _port(option: str, output: Path) -> list[str]:
    return [option, str(free_port(str(output)))] if output.is_absolute() else []
