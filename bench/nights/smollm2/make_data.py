"""The data of query rewriting: what a person types, and the search query it stands for.

Held-out queries come from templates and words that training never shows: a model that has only learnt the templates by
heart fails. The rule to be learnt: keep quality, thing, place and time, in this order, and drop everything else.

    python make_data.py            # writes data/train.jsonl and data/eval.jsonl
"""

from __future__ import annotations

import json
import random
from pathlib import Path

INSTRUCTION = "Rewrite the message as a short search query."

TRAIN = (
    "hi, i am looking for a {quality} {thing} in {place} {time}, any ideas?",
    "can you find me a {quality} {thing} {time} in {place} please",
    "we are in {place} and need a {quality} {thing} {time}",
    "is there a {thing} in {place} that is {quality}? it is for {time}",
    "my sister wants a {quality} {thing}, she lives in {place}, and it must be {time}",
    "{time} i will be in {place}. where is a {quality} {thing}?",
    "please help: {quality} {thing} wanted, {place}, {time}, thank you!",
    "do you know of any {thing} around {place}? something {quality}, {time}",
    "what would be a {quality} {thing} for {time}? i live in {place}",
    "need some advice on a {thing} in {place}, {time}, should be {quality}",
    "it would be great to have a {quality} {thing} {time} while we stay in {place}",
    "so, {place}. {time}. a {thing}. and {quality}, if possible. thanks",
)
HELD_OUT = (
    "my friends visit me {time} and asked for a {quality} {thing}, we meet in {place}",
    "in {place} {time}, which {thing} would you call {quality}?",
    "a {thing}, and a {quality} one at that, is what i need {time} in {place}",
    "good evening! {place} is new to me. could you name a {quality} {thing} for {time}?",
    "they told me {place} has a {quality} {thing}; i want to go {time}",
    "sorry to bother you, but where do people in {place} find a {thing} {time} that is {quality}?",
)
WORDS = {
    "train": {
        "quality": ("cheap", "quiet", "modern", "small", "famous", "friendly", "clean", "large"),
        "thing": ("hotel", "bakery", "dentist", "gym", "bookshop", "garage", "museum", "pharmacy", "bar", "florist"),
        "place": ("Berlin", "Madrid", "Oslo", "Lyon", "Dublin", "Vienna", "Porto", "Warsaw"),
        "time": ("tonight", "tomorrow", "on Monday", "next week", "this weekend", "in the morning"),
    },
    "eval": {
        "quality": ("cosy", "luxury", "cheap", "old", "good"),
        "thing": ("restaurant", "barber", "cinema", "hotel", "tailor", "library"),
        "place": ("Prague", "Turin", "Berlin", "Ghent", "Bergen"),
        "time": ("on Friday", "tonight", "next month", "after work"),
    },
}


def rows(split: str, count: int, seed: int) -> list[dict[str, str]]:
    """`count` different examples of one split."""
    rng = random.Random(seed)  # noqa: S311
    templates, words = (TRAIN if split == "train" else HELD_OUT), WORDS[split]
    found: dict[str, dict[str, str]] = {}
    while len(found) < count:
        slots = {name: rng.choice(choices) for name, choices in words.items()}
        message = rng.choice(templates).format(**slots)
        query = "{quality} {thing} {place} {time}".format(**slots)
        found.setdefault(message, {"instruction": INSTRUCTION, "input": message, "output": query})
    return list(found.values())


def main() -> None:
    folder = Path("data")
    folder.mkdir(exist_ok=True)
    for split, count, seed in (("train", 400, 1), ("eval", 60, 2)):
        text = "".join(json.dumps(row) + "\n" for row in rows(split, count, seed))
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
