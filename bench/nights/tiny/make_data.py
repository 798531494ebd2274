"""The data of the nights with a tiny model: search queries as people type them, and as they should read.

    python make_data.py            # writes data/: JSON as LLaMA-Factory reads it, JSON lines as TRL does

The rule to be learnt: known slips and short forms become the full word, in the order quality, thing, place. Every
held-out query is a combination that training does not show.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

INSTRUCTION = "Rewrite the search query."
SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
"""As LLaMA-Factory's template `qwen` has it."""
QUALITIES = {"cheap": ("cheapo", "low cost"), "quiet": ("kwiet", "no noise"), "large": ("big", "xl"), "new": ("nu",)}
THINGS = {
    "phone": ("fone", "mobile"),
    "laptop": ("lptop", "notebook"),
    "camera": ("camra", "cam"),
    "bicycle": ("bike", "bycicle"),
    "jacket": ("jckt", "coat"),
    "chair": ("seat", "chiar"),
}
PLACES = {"London": ("ldn",), "Paris": ("pariss",), "New York": ("nyc", "ny"), "Berlin": ("brln",)}
TRAIN, TEST = 240, 60
PAIRS = 160

Row = dict[str, str]


def rows(seed: int) -> list[Row]:
    """Every query there is, shuffled: what is typed, what it should read."""
    found = []
    for (quality, qs), (thing, ts), (place, ps) in itertools.product(QUALITIES.items(), THINGS.items(), PLACES.items()):
        for typed in itertools.product(qs, ts, ps):
            meant = f"{quality} {thing} in {place}"
            found.append({"instruction": INSTRUCTION, "input": " ".join(typed), "output": meant})
    random.Random(seed).shuffle(found)  # noqa: S311
    return found


def pair(row: Row) -> Row:
    """What it should read is preferred to what was typed."""
    return {"instruction": INSTRUCTION, "input": row["input"], "chosen": row["output"], "rejected": row["input"]}


def chat(row: Row) -> dict[str, Any]:
    """For TRL: prompt and completion as messages, and the right answer for a reward."""
    asked = f"{INSTRUCTION}\n{row['input']}"
    prompt = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked}]
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": row["output"]}], "meant": row["output"]}


def main() -> None:
    every = rows(0)
    train, test = every[:TRAIN], every[TRAIN : TRAIN + TEST]
    columns = {"prompt": "instruction", "query": "input", "chosen": "chosen", "rejected": "rejected"}
    ranking = {"ranking": True, "columns": columns}
    tables: dict[str, Any] = {
        "train": train,
        "test": test,
        "pairs_train": [pair(row) for row in train[:PAIRS]],
        "pairs_test": [pair(row) for row in test],
    }
    info = {name: {"file_name": f"{name}.json", **(ranking if "pairs" in name else {})} for name in tables}
    folder = Path("data")
    folder.mkdir(exist_ok=True)
    for name, content in {**tables, "dataset_info": info}.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (folder / "chat").mkdir(exist_ok=True)
    for name, part in (("train", train), ("test", test)):
        lines = "".join(json.dumps(chat(row)) + "\n" for row in part)
        (folder / "chat" / f"{name}.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
