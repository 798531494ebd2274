"""Makes what every run shares: a teacher, tokenised examples, and the cache of the teacher's logits. Run it once.

usage: python prepare.py

The text is CPython's own reference documentation, one token a character: nothing is downloaded. The teacher sees all of
the text but the held-out tail, the students only 256 examples of 64 characters. Frozen: no experiment may change it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from pydoc_data.topics import topics

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from nightlab.tools.distillation.cache import CacheWriter
from nightlab.tools.distillation.cache_files import Header, fingerprint_of
from nightlab.tools.distillation.dumping import dump

PREPARED = Path("prepared")
CHARACTERS = ["�", "\n", *map(chr, range(32, 127))]
NUMBERS = {character: number for number, character in enumerate(CHARACTERS)}
LENGTH = 64
TRAIN_EXAMPLES, EVAL_EXAMPLES = 256, 128
TEACHER_STEPS, TEACHER_BATCH = 1200, 16
K = 16
TEMPERATURES = (1.0, 2.0, 4.0)


def model(width: int, seed: int) -> LlamaForCausalLM:
    """A small language model over `CHARACTERS`."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(CHARACTERS),
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=LENGTH,
            tie_word_embeddings=True,
        )
    )


def tokens() -> torch.Tensor:
    text = "\n\n".join(topics[name] for name in sorted(topics))
    return torch.tensor([NUMBERS.get(character, 0) for character in text])


def examples(data: torch.Tensor, count: int) -> list[dict[str, list[int]]]:
    """Windows spread evenly over the text; every token is learned."""
    starts = torch.linspace(0, len(data) - LENGTH, count).long()
    windows = [data[start : start + LENGTH].tolist() for start in starts]
    return [{"input_ids": window, "labels": window} for window in windows]


def train_teacher(data: torch.Tensor) -> LlamaForCausalLM:
    teacher = model(width=96, seed=0)
    optimiser = torch.optim.AdamW(teacher.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=TEACHER_STEPS)
    for step in range(1, TEACHER_STEPS + 1):
        starts = torch.randint(len(data) - LENGTH, (TEACHER_BATCH, 1))
        batch = data[starts + torch.arange(LENGTH)]
        loss = teacher(input_ids=batch, labels=batch).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 200 == 0:
            print(f"teacher step {step}: loss {loss.item():.3f}", flush=True)
    return teacher.eval()


def main() -> None:
    data = tokens()
    split = round(len(data) * 0.9)
    train, held_out = examples(data[:split], TRAIN_EXAMPLES), examples(data[split:], EVAL_EXAMPLES)
    PREPARED.mkdir(exist_ok=True)
    for name, part in (("train", train), ("eval", held_out)):
        lines = "".join(json.dumps(example) + "\n" for example in part)
        (PREPARED / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    teacher = train_teacher(data[:split])
    teacher.save_pretrained(PREPARED / "teacher")
    header = Header(fingerprint_of(NUMBERS), len(CHARACTERS), K, TEMPERATURES, teacher="prepared/teacher")
    with CacheWriter(PREPARED / "cache", header) as writer:
        # The held-out examples too: their divergence is measured, never trained on.
        dump(teacher, [*train, *held_out], writer, batch_size=32)
        writer.finish()
    print(f"{writer.examples} examples, {writer.rows} target tokens in {PREPARED / 'cache'}")


if __name__ == "__main__":
    main()
