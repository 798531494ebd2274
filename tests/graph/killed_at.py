"""A lab that kills itself at a boundary: `python -m tests.graph.killed_at STUDY NAME before|after`."""

from __future__ import annotations

import sys
from pathlib import Path

from nightlab.knowledge.records import StudyStatus
from nightlab.night import run_night
from tests.torture import boundaries
from tests.torture.bootstrap import Fault, Tripwire, install, load_everything


def main(study: Path, name: str, when: str) -> int:
    load_everything()
    boundaries.BOUNDARIES.update(boundaries.PRUNING | boundaries.STRESS)
    install(Tripwire(Fault(name, when, 1)))
    return 0 if run_night(study, say=lambda _: None).status is StudyStatus.FINISHED else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
