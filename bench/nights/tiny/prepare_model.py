"""A language model made on the spot: Qwen2 of 2 layers × 64 with a byte-pair tokenizer of its own, in `model/`.

    python prepare_model.py        # about half a minute of CPU; needs torch and transformers

It is trained just long enough to follow the chat format and to repeat a query, now and then with another name of the
same thing: a base that a night of fine-tuning can start from, and that has something to say to a reward.
"""

from __future__ import annotations

import random

import torch
from make_data import INSTRUCTION, PLACES, QUALITIES, SYSTEM, THINGS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

STEPS, BATCH, RATE = 600, 24, 4e-3
OTHERWISE = 0.3
"""How often a word of the answer may be another name of what was typed."""
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def dialogue(rng: random.Random) -> tuple[str, str]:
    """A query of three words, typed well or badly, and what repeats it."""
    asked, answer = [], []
    for table in (QUALITIES, THINGS, PLACES):
        meant = rng.choice([*table])
        names = (meant, *table[meant])
        asked.append(rng.choice(names))
        answer.append(rng.choice(names) if rng.random() < OTHERWISE else asked[-1])
    turns = (("system", SYSTEM), ("user", f"{INSTRUCTION}\n{' '.join(asked)}"))
    prompt = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    return f"{prompt}<|im_start|>assistant\n", " ".join(answer)


def make_tokenizer(rng: random.Random) -> PreTrainedTokenizerFast:
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=[*SPECIAL], initial_alphabet=alphabet)
    raw.train_from_iterator(("".join(dialogue(rng)) for _ in range(2000)), trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token=SPECIAL[2], pad_token=SPECIAL[0], additional_special_tokens=[SPECIAL[1]]
    )
    made.chat_template = CHAT
    return made


def batch(tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> dict[str, torch.Tensor]:
    """Right-padded `input_ids`, `attention_mask` and `labels`, each (rows, longest)."""
    pairs = []
    for _ in range(BATCH):
        asked, answer = dialogue(rng)
        encoded = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (asked, f"{answer}<|im_end|>\n")]
        pairs.append(encoded)
    longest = max(len(asked) + len(answer) for asked, answer in pairs)
    rest = [longest - len(asked) - len(answer) for asked, answer in pairs]
    filled = list(zip(pairs, rest, strict=True))
    return {
        "input_ids": torch.tensor([[*a, *b, *[tokenizer.pad_token_id] * n] for (a, b), n in filled]),
        "attention_mask": torch.tensor([[1] * (longest - n) + [0] * n for _, n in filled]),
        "labels": torch.tensor([[-100] * len(a) + b + [-100] * n for (a, b), n in filled]),
    }


def main() -> None:
    rng = random.Random(0)  # noqa: S311
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer = make_tokenizer(rng)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, STEPS)
    for step in range(STEPS):
        loss = model(**batch(tokenizer, rng)).loss
        loss.backward()
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    model.save_pretrained("model")
    tokenizer.save_pretrained("model")


if __name__ == "__main__":
    main()
