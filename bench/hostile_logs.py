"""How the metric reader fares with hostile logs of a gigabyte each: `python -m bench.hostile_logs [--megabytes N]`.

Writes one log at a time into a temporary folder and removes it; the column `memory` is how much the process's largest
resident size grew.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.tools.metrics.hostile import CASES, Case, read, write

# What must stay free beside the log.
SPARE_BYTES = 2_000_000_000


def largest_resident_bytes() -> int:
    # Kilobytes on Linux, bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measured(case: Case, size_bytes: int, where: Path | None) -> tuple[str, bool]:
    """One line of the table, and whether the outcome is the expected one."""
    with tempfile.TemporaryDirectory(prefix="nightlab-hostile-", dir=where) as name:
        folder = Path(name)
        write(folder / "stdout.log", case, size_bytes)
        (folder / "stderr.log").touch()
        before_bytes, start = largest_resident_bytes(), time.perf_counter()
        result = read(folder, case, traced=False)
        seconds = time.perf_counter() - start
        grown_bytes = largest_resident_bytes() - before_bytes
        megabytes = (folder / "stdout.log").stat().st_size / 1e6
    right = result.outcome == case.expected
    speed = f"{megabytes:7.0f} {seconds:8.1f} {megabytes / seconds:8.0f} {grown_bytes / 1e6:8.1f}"
    return f"{case.name:34} {speed}  {result.outcome}{'' if right else f'  WRONG, expected {case.expected}'}", right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000, help="size of each log")
    parser.add_argument("--dir", type=Path, default=None, help="where to make the temporary folder")
    given = parser.parse_args()
    size_bytes = given.megabytes * 1_000_000
    free_bytes = shutil.disk_usage(given.dir or tempfile.gettempdir()).free
    needed_bytes = size_bytes + SPARE_BYTES
    if free_bytes < needed_bytes:
        print(f"{free_bytes / 1e9:.1f} GB free, {needed_bytes / 1e9:.1f} GB needed: use --megabytes or --dir")
        return 2
    print(f"{'log':34} {'MB':>7} {'seconds':>8} {'MB/s':>8} {'memory':>8}  outcome")
    everything_right = True
    for case in CASES:
        line, right = measured(case, size_bytes, given.dir)
        everything_right &= right
        print(line, flush=True)
    return 0 if everything_right else 1


if __name__ == "__main__":
    sys.exit(main())
