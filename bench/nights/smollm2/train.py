"""LoRA fine-tuning of SmolLM2-135M on query rewriting, on one CPU thread; then generation for the held-out queries.

    python train.py --params params.json --seed 0 --output out

Writes `generated_predictions.jsonl` (prompt, predict, label) to the output folder, and prints the training loss and
`eval_loss`. Steps are counted, not seconds: every run gets the same work, whatever else the machine does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

IGNORED = -100
"""Label of a token that carries no loss."""
NEW_TOKENS = 20
EVAL_BATCH = 20


def read(path: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


class Coder:
    """Turns examples into tokens as the chat template has them."""

    def __init__(self, folder: str, style: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.style = style

    def prompt(self, row: dict[str, str]) -> str:
        asked = f"{row['instruction']}\n{row['input']}"
        if self.style == "delimited":
            asked = f"{row['instruction']}\nMessage: {row['input']}\nQuery:"
        turns = [{"role": "user", "content": asked}]
        return str(self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def batch(self, rows: list[dict[str, str]], *, on_prompt: bool) -> dict[str, torch.Tensor]:
        """Right-padded `input_ids`, `attention_mask` and `labels`, each (rows, longest)."""
        pairs = [(self.encode(self.prompt(row)), self.encode(row["output"] + "<|im_end|>\n")) for row in rows]
        longest = max(len(asked) + len(answer) for asked, answer in pairs)
        ids, mask, labels = [], [], []
        for asked, answer in pairs:
            rest = longest - len(asked) - len(answer)
            ids.append([*asked, *answer, *[self.tokenizer.pad_token_id] * rest])
            mask.append([1] * (len(asked) + len(answer)) + [0] * rest)
            learnt = asked if on_prompt else [IGNORED] * len(asked)
            labels.append([*learnt, *answer, *[IGNORED] * rest])
        return {name: torch.tensor(rows) for name, rows in zip(NAMES, (ids, mask, labels), strict=True)}


NAMES = ("input_ids", "attention_mask", "labels")


def rate(step: int, steps: int, warmup: float, schedule: str) -> float:
    """Share of the peak learning rate at a step."""
    ahead = warmup * steps
    if step < ahead:
        return (step + 1) / (ahead + 1)
    if schedule == "constant":
        return 1.0
    done = (step - ahead) / max(1, steps - ahead)
    return 1.0 - done if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def train(model: torch.nn.Module, coder: Coder, rows: list[dict[str, str]], p: dict[str, object], seed: int) -> None:
    chosen = [one for one in model.parameters() if one.requires_grad]
    optimiser = torch.optim.AdamW(chosen, lr=float(p["learning_rate"]), weight_decay=float(p["weight_decay"]))
    order = torch.Generator().manual_seed(seed)
    steps = int(p["steps"])
    model.train()
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = float(p["learning_rate"]) * rate(
                step, steps, float(p["warmup_ratio"]), str(p["lr_scheduler"])
            )
        picked = torch.randint(len(rows), (int(p["batch_size"]),), generator=order).tolist()
        batch = coder.batch([rows[i] for i in picked], on_prompt=bool(p["train_on_prompt"]))
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(chosen, float(p["max_grad_norm"]))
        optimiser.step()
        optimiser.zero_grad()
        print(json.dumps({"step": step + 1, "loss": round(loss.item(), 5)}), flush=True)


@torch.no_grad()
def evaluate(model: torch.nn.Module, coder: Coder, rows: list[dict[str, str]], output: Path) -> None:
    model.eval()
    losses = []
    coder.tokenizer.padding_side = "left"
    with (output / "generated_predictions.jsonl").open("w", encoding="utf-8") as out:
        for start in range(0, len(rows), EVAL_BATCH):
            part = rows[start : start + EVAL_BATCH]
            losses.append(model(**coder.batch(part, on_prompt=False)).loss.item())
            asked = [coder.prompt(row) for row in part]
            tokens = coder.tokenizer(asked, return_tensors="pt", padding=True, add_special_tokens=False)
            made = model.generate(**tokens, max_new_tokens=NEW_TOKENS, do_sample=False)
            texts = coder.tokenizer.batch_decode(made[:, tokens["input_ids"].shape[1] :], skip_special_tokens=True)
            for row, prompt, text in zip(part, asked, texts, strict=True):
                line = {"prompt": prompt, "predict": text.strip(), "label": row["output"]}
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"eval_loss: {sum(losses) / len(losses):.5f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--params", default="params.json")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="out")
    args = parser.parse_args()
    p = json.loads(Path(args.params).read_text(encoding="utf-8"))
    torch.manual_seed(args.seed)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    output = Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    coder = Coder("model", str(p["prompt_style"]))
    model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.float32)
    if int(p["steps"]):
        adapter = LoraConfig(
            r=int(p["lora_rank"]),
            lora_alpha=int(p["lora_alpha"]),
            lora_dropout=float(p["lora_dropout"]),
            target_modules="all-linear" if p["lora_target"] == "all" else ["q_proj", "v_proj"],
            use_rslora=bool(p["use_rslora"]),
            task_type="CAUSAL_LM",
        )
        model = get_peft_model(model, adapter)
        train(model, coder, read("data/train.jsonl")[: int(p["train_rows"])], p, args.seed)
    evaluate(model, coder, read("data/eval.jsonl")[: int(p["eval_rows"])], output)


if __name__ == "__main__":
    main()
