"""How fast secrets are taken out of the logs of ended jobs: `python -m bench.redaction [--megabytes N]`.

Megabytes a second of processor time, for a log without secrets (read once), one with web addresses, which look a little
like secrets, and one that holds secrets and is written anew.
"""

from __future__ import annotations

import argparse
import base64
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from nightlab.tools.redacted_files import redact_file
from nightlab.tools.redaction import Redactor

KEYS = [(f"KEY_{n}", base64.urlsafe_b64encode(bytes(range(n, n + 24))).decode()) for n in range(8)]


def training_line(step: int, chance: random.Random) -> str:
    loss, rate = chance.random() * 3, chance.randint(10_000, 99_999)
    return f"2026-11-29 22:01:07 step {step} | loss: {loss:.6f} | lr: 3.0e-04 | grad_norm {loss / 2:.4f} | tok/s {rate}"


def with_addresses(step: int, chance: random.Random) -> str:
    return f"{training_line(step, chance)} | https://example.org/run/{step}?page=1"


def with_secrets(step: int, chance: random.Random) -> str:
    line = training_line(step, chance)
    return f"{line}\nlogin {KEYS[step % len(KEYS)][1]}" if step % 1000 == 0 else line


def measured(path: Path, line_of: Callable[[int, random.Random], str], megabytes: int) -> float:
    """Seconds of processor time a megabyte took."""
    chance = random.Random(0)  # noqa: S311 - a log, not a key
    with path.open("w") as log:
        step = 0
        while log.tell() < megabytes * 1_000_000:
            log.writelines(f"{line_of(n, chance)}\n" for n in range(step, step + 10_000))
            step += 10_000
    redactor = Redactor(KEYS)
    redactor.redact("to have everything loaded " * 1000)
    size, start = path.stat().st_size, time.process_time()
    redact_file(path, redactor)
    return (time.process_time() - start) / (size / 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=50, help="size of each log")
    given = parser.parse_args()
    print(f"{'log':40} {'MB/s':>6}")
    cases = (("no secrets", training_line), ("web addresses", with_addresses), ("secrets", with_secrets))
    with tempfile.TemporaryDirectory(prefix="nightlab-redaction-") as folder:
        for name, line_of in cases:
            print(f"{name:40} {1 / measured(Path(folder, 'stdout.log'), line_of, given.megabytes):6.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
