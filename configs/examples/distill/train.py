"""Train a student on its examples and on what the teacher's cache says of them; print how good it is.

usage: python train.py --params params.json --seed 0

Prints `val_loss` (cross-entropy on held-out text, nats a character) and `val_kl` (forward KL from teacher to student
there, at temperature 1, over the cache's k characters and one bucket).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from prepare import NUMBERS, PREPARED, model
from transformers import TrainingArguments, set_seed

from nightlab.errors import NightlabError
from nightlab.tools.distillation.cache import LogitCache
from nightlab.tools.distillation.cache_files import fingerprint_of
from nightlab.tools.distillation.losses import Distillation
from nightlab.tools.distillation.trainer import CachedDistillationTrainer


def read(name: str) -> list[dict[str, list[int]]]:
    lines = (PREPARED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def student_trainer(p: dict[str, object], seed: int, folder: str) -> CachedDistillationTrainer:
    settings = TrainingArguments(
        folder,
        max_steps=p["steps"],
        per_device_train_batch_size=p["batch_size"],
        learning_rate=p["learning_rate"],
        lr_scheduler_type=p["lr_scheduler"],
        warmup_steps=10,
        seed=seed,
        logging_steps=max(1, p["steps"] // 8),
        per_device_eval_batch_size=64,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    return CachedDistillationTrainer(
        model(width=32, seed=seed),
        settings,
        train_dataset=read("train"),
        eval_dataset=read("eval"),
        distillation=Distillation(p["alpha"], p["temperature"], p["direction"]),
        cache=LogitCache(PREPARED / "cache", fingerprint=fingerprint_of(NUMBERS)),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Train a student from a cache of its teacher's logits.")
    parser.add_argument("--params", type=Path, default=Path("params.json"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    p = json.loads(arguments.params.read_text(encoding="utf-8"))
    print("config:", json.dumps({**p, "seed": arguments.seed}, sort_keys=True), flush=True)
    set_seed(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        try:
            trainer = student_trainer(p, arguments.seed, folder)
            trainer.train()
        except NightlabError as error:
            print(f"train.py: {error}", file=sys.stderr)
            return 2
        found = trainer.evaluate()
    print("---")
    print(f"val_loss: {found['eval_loss']:.6f}")
    print(f"val_kl:   {found['eval_kl']:.6f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
