"""A trainer's output as it comes through launchers, loggers, terminals, crashes and other people's hands.

The true last `loss` is 2.25 wherever there is one, and the true `eval_loss` 1.5; other numbers are traps.
"""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nightlab.tools.metrics.blocks import summary_number
from nightlab.tools.metrics.records import records_in
from tests.tools.metrics.recorded import printed, read, recorded

A = "{'loss': 3.5, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1}"
B = "{'loss': 2.25, 'grad_norm': 1.0, 'learning_rate': 9e-06, 'epoch': 0.2}"
OTHER = "{'loss': 9.75, 'grad_norm': 1.0, 'learning_rate': 9e-06, 'epoch': 0.2}"
BAR = "\r 40%|████      | 20/50 [00:01<00:02, 14.2it/s]"
ABSENT, INFINITE, AMBIGUOUS = "metric-absent", "metric-not-finite", "metric-ambiguous"


@pytest.mark.parametrize(
    ("log", "expected"),
    {
        "plain": (f"{A}\n{B}\n", 2.25),
        "no newline at the end": (f"{A}\n{B}", 2.25),
        "torn last line": (f"{A}\n{B}\n{{'loss': 1.7, 'grad_no", 2.25),
        "torn in the number": (f"{A}\n{B}\n{{'loss': 1.", 2.25),
        "torn first line": (f"_norm': 1.0, 'loss': 9, 'epoch': 0.01}}\n{A}\n{B}\n", 2.25),
        "Windows newlines": (f"{A}\r\n{B}\r\n", 2.25),
        "old Mac newlines": (f"{A}\r{B}\r", 2.25),
        "progress bars before": (f"{A}\n{BAR}{BAR}\r{' ' * 60}\r{B}\n", 2.25),
        "glued to a bar": (f"{A}\n{BAR}{B}\n", 2.25),
        "bar glued behind": (f"{A}\n{B}{BAR}\n", 2.25),
        "bar with a name": (f"{A}\nTraining:  40%|####      | 20/50 [00:01<00:02, 14.2it/s]{B}\n", 2.25),
        "bar with postfix": (f"{A}\n 40%|####  | 20/50 [00:01<00:02, 14.2it/s, loss=9.75]{B}\n", 2.25),
        "bar of kilosteps": (f"{A}\n 40%|####  | 2.00k/5.00k [00:01<00:02, 1.42kit/s] {B}\n", 2.25),
        "colours": (f"{A}\n\x1b[32m{B}\x1b[0m\n", 2.25),
        "colours within": ("{'\x1b[1mloss\x1b[0m': \x1b[36m2.25\x1b[0m, 'epoch': 0.2}\n", 2.25),
        "cursor movements": (f"{A}\n\x1b[A\x1b[2K{B}\x1b[A\n", 2.25),
        "strings (transformers 5)": (B.replace("2.25", "'2.25'").replace("9e-06", "'9e-06'") + "\n", 2.25),
        "numpy scalars": (B.replace("2.25", "np.float64(2.25)") + "\n", 2.25),
        "tensors": (B.replace("2.25", "tensor(2.25, device='cuda:0')") + "\n", 2.25),
        "JSON": (B.replace("'", '"') + "\n", 2.25),
        "bare nan": (f"{A}\n{B.replace('2.25', 'nan')}\n", INFINITE),
        "quoted inf": (f"{A}\n{B.replace('2.25', repr('inf'))}\n", INFINITE),
        "minus infinity": (f"{A}\n{B.replace('2.25', '-inf')}\n", INFINITE),
        "JSON NaN": (f"{A}\n{B.replace(chr(39), chr(34)).replace('2.25', 'NaN')}\n", INFINITE),
        "None": (f"{A}\n{B.replace('2.25', 'None')}\n", INFINITE),
        "nan that passed": (f"{A.replace('3.5', 'nan')}\n{B}\n", 2.25),
        "other values nan": (f"{A}\n{B.replace('1.0', 'nan')}\n", 2.25),
        "text for a value": (f"{A}\n{B.replace('2.25', repr('low'))}\n", "metric-unreadable"),
        "decimal comma": (f"{A}\n{B.replace('2.25', repr('2,25'))}\n", AMBIGUOUS),
        "key twice": ("{'loss': 2.25, 'loss': 9.75, 'epoch': 0.2}\n", ABSENT),
        "huge exponent": (B.replace("2.25", "1e999") + "\n", INFINITE),
        "unicode around": (f"训练开始 🚀\n{A}\n✅ {'—' * 20}\n{B}\n💾 gespeichert\n", 2.25),
        "unicode keys": ("{'loss': 2.25, 'eval_中文_loss': 9.75, 'epoch': 0.2}\n", 2.25),
        "byte order mark": (f"\ufeff{A}\n{B}\n", 2.25),
        "null bytes": (f"{A}\n\0\0\0{B}\n", 2.25),
        "torchrun rank 0": (f"[rank0]: {A}\n[rank0]: {B}\n", 2.25),
        "torchrun tee": (f"[default0]:{A}\n[default0]:{B}\n[default1]:{OTHER}\n", 2.25),
        "ranks interleaved": (f"[rank1]: {OTHER}\n[rank0]: {A}\n[rank0]: {B}\n[rank1]: {OTHER}\n", 2.25),
        "ranks alike": (f"[rank1]: {B}\n[rank2]: {B}\n", 2.25),
        "ranks disagree without rank 0": (f"[rank1]: {B}\n[rank2]: {OTHER}\n", AMBIGUOUS),
        "srun labels": (f"0: {A}\n0: {B}\n1: {OTHER}\n", 2.25),
        "MPI tags": (f"[1,0]<stdout>:{A}\n[1,0]<stdout>:{B}\n[1,1]<stdout>:{OTHER}\n", 2.25),
        "Ray worker": (f"(RayTrainWorker pid=123, ip=10.0.0.7) {A}\n(RayTrainWorker pid=123, ip=10.0.0.7) {B}\n", 2.25),
        "Ray workers disagree": (f"(RayTrainWorker pid=123) {B}\n(RayTrainWorker pid=124) {OTHER}\n", AMBIGUOUS),
        "Ray with colours": (f"\x1b[36m(RayTrainWorker pid=123)\x1b[0m {B}\n", 2.25),
        "time stamps": (f"2026-11-29 13:35:41,205 {A}\n2026-11-29T13:35:42.1Z {B}\n", 2.25),
        "logging prefix": (f"[INFO|trainer.py:12] 2026-11-29 13:35:41,205 >> {B}\n", 2.25),
        "root logger": (f"INFO:root:{B}\n", 2.25),
        "dashes": (f"2026-11-29 13:35:41 - INFO - trainer.py:12 - {B}\n", 2.25),
        "compose": (f"trainer-1  | {B}\n", 2.25),
        "loguru": (f"2026-11-29 13:35:41.205 | INFO | train.py:12 - {B}\n", 2.25),
        "two in a line": (f"{A}{B}\n", 2.25),
        "printed by two ranks at once": (f"{A}{A}\n\n{B}{B}\n\n", 2.25),
        "warning glued behind": (f"{A}\n{B}[W socket.cpp:426] warning\n", 2.25),
        "prose before": (f"{B}\nthe run before had {OTHER}\n", 2.25),
        "prose behind": (f"{B}\n{OTHER} was the run before\n", 2.25),
        "quoted": (f"{B}\n> {OTHER}\n# {OTHER}\n'{OTHER}'\n", 2.25),
        "in a model's answer": (f'{B}\n{{"prompt": "x", "completion": "{OTHER}"}}\n', 2.25),
        "nested": (f"{B}\n{{'eval': {OTHER}}}\n", 2.25),
        "in a list": (f"{B}\n[{OTHER}, {OTHER}]\n", 2.25),
        "a configuration": (f"{B}\n{{'loss_type': 'x', 'learning_rate': 1, 'loss_fn': 'ce'}}\n", 2.25),
        "look-alike keys": ("{'loss': 2.25, 'total_loss': 9.75, 'loss/ce': 9.75, 'epoch': 0.2}\n", 2.25),
        "a table of results": (f"{B}\nloss: 9.75\nloss = 9.75\n", 2.25),
        "resumed": (f"{A}\n{OTHER}\nResuming training from out/checkpoint-10.\n{A}\n{B}\n", 2.25),
        "only spaces": ("  \n\n", ABSENT),
        "empty": ("", ABSENT),
        "escaped quotes": ("{'loss': 2.25, 'note': 'it\\'s', 'epoch': 0.2}\n", 2.25),
        "lists beside": ("{'layers': [1, 2], 'loss': 2.25, 'epoch': 0.2}\n", 2.25),
        "a list for a value": ("{'loss': [2.25, 9.75], 'epoch': 0.2}\n", AMBIGUOUS),
    }.values(),
    ids=lambda value: None if isinstance(value, float) else "",
)
def test_the_last_loss_of_a_nasty_log(tmp_path: Path, log: str, expected: float | str) -> None:
    files = printed(log.encode(), tmp_path)
    assert read(files, "loss") == expected


def test_the_same_record_of_several_ranks_counts_once(tmp_path: Path) -> None:
    assert read(printed(f"{A}\n{A}\n{A}\n{B}\n{B}\n", tmp_path), "loss", pick="mean") == (3.5 + 2.25) / 2
    lines = "".join(f"[rank{rank}]: {record}\n" for record in (A, B) for rank in range(4))
    assert read(printed(lines, tmp_path), "loss", pick="mean") == (3.5 + 2.25) / 2


EVAL = "***** eval metrics *****\n  epoch     =        2.0\n  eval_loss =        1.5\n  eval_runtime = 0:00:02.50\n"


def prefixed(prefix: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in EVAL.splitlines())


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (EVAL, 1.5),
        (EVAL.rstrip("\n"), 1.5),
        (EVAL.replace("\n", "\r\n"), 1.5),
        (f"{BAR}{EVAL}", 1.5),
        (f"\x1b[1m{EVAL}\x1b[0m", 1.5),
        (prefixed("[rank0]: "), 1.5),
        (prefixed("(RayTrainWorker pid=123) "), 1.5),
        (prefixed("2026-11-29 13:35:41 "), 1.5),
        (EVAL.replace("  eval_loss", "WARNING: something\n  eval_loss"), 1.5),
        (EVAL.replace("  eval_loss", f"{BAR}\n{BAR}\n  eval_loss"), 1.5),
        (EVAL.replace("1.5", "nan"), INFINITE),
        ("***** eval metrics *****\n  epoch     =        2.0\n", ABSENT),
        ("***** eval metrics *****\n  epoch     =        2.0\n  eval_lo", ABSENT),
        ("  eval_loss =        9.5\n", ABSENT),
        ("***** train metrics *****\n  train_loss = 9.5\n  eval_loss = 9.5\n", ABSENT),
        ("***** eval metrics *****\n" + "noise\n" * 50 + "  eval_loss = 9.5\n", ABSENT),
        (EVAL.replace("1.5", "9.5") + EVAL, 1.5),
        (f"{EVAL}{{'eval_loss': 9.5, 'epoch': 2}}\n", 1.5),
        ("***** eval metrics ****\n  eval_loss = 9.5\n", ABSENT),
    ],
)
def test_the_summary_of_a_nasty_log(tmp_path: Path, log: str, expected: float | str) -> None:
    assert read(printed(log, tmp_path), "eval_loss") == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0:00:17.71", 17.71),
        ("12:34:56", 45296.0),
        ("1 day, 2:03:04.5", 93784.5),
        ("3 days, 0:00:00.00", 259200.0),
        ("12MB", 12 * 2**20),
        ("-3MB", -3 * 2**20),
        ("37GF", 37 * 2**30),
        ("45.5%", 45.5),
        ("1e-05", 1e-05),
        ("371677.8275", 371677.8275),
    ],
)
def test_values_of_a_summary_are_in_the_units_of_the_json_files(text: str, value: float) -> None:
    assert summary_number(text) == pytest.approx(value)


STATE = '{"global_step": 2, "max_steps": 2, "log_history": [{"loss": 3.5, "step": 1}, {"loss": 2.25, "step": 2}]}'
LOG = '{"current_steps": 1, "loss": 3.5}\n{"current_steps": 2, "loss": 2.25}\n'


@pytest.mark.parametrize(
    ("files", "log", "expected"),
    [
        ({"trainer_state.json": STATE}, OTHER, 2.25),
        ({"trainer_state.json": STATE[:-9]}, B, 2.25),
        ({"trainer_state.json": ""}, B, 2.25),
        ({"trainer_state.json": "[]"}, B, 2.25),
        ({"trainer_state.json": '{"log_history": 7}'}, B, 2.25),
        ({"trainer_state.json": '{"log_history": [1, null, {"step": 1}]}'}, B, 2.25),
        ({"trainer_state.json": STATE[:-9]}, "", "metric-unreadable"),
        ({"trainer_state.json": STATE.replace("2.25", "NaN")}, B, INFINITE),
        ({"trainer_state.json": STATE.replace("2.25", "null")}, B, INFINITE),
        ({"trainer_log.jsonl": LOG}, OTHER, 2.25),
        ({"trainer_log.jsonl": LOG + '{"current_steps": 3, "loss": 9.'}, "", 2.25),
        ({"trainer_log.jsonl": LOG.replace("\n", "\r\n")}, "", 2.25),
        ({"trainer_log.jsonl": "\x1b[0m" + LOG}, "", 2.25),
        ({"trainer_log.jsonl": LOG.replace("2.25", "NaN")}, B, INFINITE),
        ({"checkpoint-2/trainer_state.json": STATE}, "", 2.25),
        ({"checkpoint-2/trainer_state.json": STATE, "checkpoint-10/trainer_state.json": STATE}, "", 2.25),
        ({"checkpoint-2/trainer_state.json": STATE.replace('"max_steps": 2', '"max_steps": 9')}, B, 2.25),
        ({"checkpoint-x/trainer_state.json": STATE}, B, 2.25),
        ({"trainer_state.json": STATE, "checkpoint-9/trainer_state.json": STATE.replace("2.25", "9")}, "", 2.25),
    ],
)
def test_nasty_files_of_a_trainer(tmp_path: Path, files: dict[str, str], log: str, expected: float | str) -> None:
    assert read(printed(log + "\n", tmp_path, files), "loss") == expected


RUNS: dict[str, tuple[str, float]] = {
    "llamafactory/sft": ("eval_loss", 5.505),
    "llamafactory/full": ("eval_loss", 0.6257),
    "llamafactory/dpo": ("rewards/margins", 1.585),
    "llamafactory/pred": ("predict_bleu-4", 44.8761),
    "trl/sft": ("eval_loss", 3.783),
    "trl/grpo": ("rewards/length_reward/mean", -0.3333),
}


def torn(text: str) -> str:
    return text + text[-40:].rsplit("\n", 1)[-1] + "{'loss': 9.75, 'eval_lo"


def coloured(text: str) -> str:
    return re.sub(r"('[\w/-]+')", "\x1b[35m\\1\x1b[0m", text)


def interleaved(text: str) -> str:
    wrong = re.sub(r"(?<=')-?\d[\d.e+-]*(?=')", "77", text)
    pairs = zip(text.splitlines(), wrong.splitlines(), strict=True)
    return "".join(f"[rank1]: {other}\n[rank0]: {line}\n" for line, other in pairs)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    "harm",
    [
        torn,
        coloured,
        interleaved,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", f"\n{BAR}\n{BAR}"),
        lambda text: "".join(f"(RayTrainWorker pid=9) {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"2026-11-29 13:35:41,205 {line}\n" for line in text.splitlines()),
        lambda text: text + "x" * 300_000,
        lambda text: text.replace("'loss'", "'loss'", 1) * 2,
        lambda text: "问" * 100_000 + "\n" + text,
    ],
)
def test_a_recorded_output_survives(tmp_path: Path, run: str, harm: Callable[[str], str]) -> None:
    metric, value = RUNS[run]
    files = recorded(run, tmp_path)
    text = harm(files.stdout.read_text(encoding="utf-8"))
    harmed = printed(text, tmp_path / "harmed")
    assert read(harmed, metric) == pytest.approx(value, rel=2e-3)


@pytest.mark.parametrize(
    ("filler", "source"),
    [
        (A + "\n", {"pick": "best"}),
        ("{'loss': 3.5, 'x" + "y" * 70_000 + "': 1}\n", {}),
        ("{" * 5000 + "\n", {}),
        ("{'loss': " * 5000 + "\n", {}),
        ("[rank" * 5000 + "\n", {}),
        ("".join(f"[rank{rank}]: {A}\n" for rank in range(1, 2000)), {}),
        (BAR * 200 + "\n", {}),
        ("loss " * 10_000 + "\n", {}),
        ("'loss': '" * 4000 + "\n", {}),
    ],
)
def test_a_hostile_log_takes_little_memory(tmp_path: Path, filler: str, source: dict[str, Any]) -> None:
    text = filler * ((1 << 20) // len(filler.encode()) + 1) + B + "\n"
    files = printed(text, tmp_path)
    tracemalloc.start()
    value = read(files, "loss", **source)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert value == 2.25
    assert peak < 3 << 20


@pytest.mark.parametrize(
    "line", ["", "{", "{}", "{'a'}", "{'a': }", "{'': 1}", "{1: 2}", "{'loss': {}}", "}{", "{'loss'"]
)
def test_what_is_no_record_is_none(line: str) -> None:
    assert list(records_in(line)) == []
