"""The files of a logit cache: their names, types and sizes, what the header says, and how an example is recognised.

One folder, every number little-endian, rows one after the other without gaps. A row is what the teacher expects at one
target token, given all tokens before it:

==============  ==========================  =====================================================================
`header.json`   JSON                        `Header` and the counts; written last, so a cache without it is unfinished
`ids.bin`       uint16 or uint32, (rows, k)  the k likeliest tokens, likeliest first; uint32 above 65,536 tokens
`logs.bin`      float16 or float32, (rows, k)  their log-probabilities at temperature 1
`tail.bin`      the same, (rows, t)         log Σ p^(1/T) over all other tokens, for each of the t temperatures
`index.bin`     uint64, (examples, 2)       key of an example, and the row behind its last one
==============  ==========================  =====================================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nightlab.errors import ConfigError, Fault

__all__ = ["DRAFT", "FILES", "HEADER", "IGNORED", "Header", "fingerprint_of", "key_of", "targets_of"]

HEADER, DRAFT = "header.json", "unfinished.json"
FILES = ("ids.bin", "logs.bin", "tail.bin", "index.bin")
VERSION = 1
IGNORED = -100
"""Label of a token that is not learned, as in transformers."""
INDEX_ROW = np.dtype("<u8")


@dataclass(frozen=True)
class Header:
    """What a cache holds. Two caches with the same header may be used by the same student."""

    fingerprint: str
    """Of the tokenizer: `fingerprint_of`. Empty: not told, not checked."""
    vocabulary: int
    """Tokens the teacher's distribution is over."""
    k: int
    """Tokens kept a row; as many as `vocabulary`: nothing is left out."""
    temperatures: tuple[float, ...] = (1.0,)
    """The ones the mass of the other tokens is known for exactly."""
    precision: str = "float16"
    teacher: str = ""
    """For a person."""

    def __post_init__(self) -> None:
        faults = [
            Fault("must be from 1 to the vocabulary", key="k", value=self.k)
            if not 1 <= self.k <= self.vocabulary
            else None,
            Fault("must be float16 or float32", key="precision", value=self.precision)
            if self.precision not in ("float16", "float32")
            else None,
            Fault("must be above 0, rising, each once, 1 among them", key="temperatures", value=self.temperatures)
            if list(self.temperatures) != sorted({*self.temperatures, 1.0}) or min(self.temperatures) <= 0
            else None,
        ]
        if found := [fault for fault in faults if fault]:
            raise ConfigError(found)

    @property
    def row_types(self) -> dict[str, tuple[np.dtype[Any], int]]:
        """Type and width of a row of each file of rows."""
        ids = np.dtype("<u2" if self.vocabulary <= 1 << 16 else "<u4")
        logs = np.dtype("<f2" if self.precision == "float16" else "<f4")
        return {"ids.bin": (ids, self.k), "logs.bin": (logs, self.k), "tail.bin": (logs, len(self.temperatures))}

    def row_bytes(self, file: str) -> int:
        kind, width = self.row_types[file]
        return kind.itemsize * width

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **vars(self), "temperatures": list(self.temperatures)}

    @classmethod
    def of_json(cls, told: object, file: Path) -> Header:
        """Raises ConfigError for what is no header of this version."""
        if not isinstance(told, dict) or told.get("version") != VERSION:
            found = told.get("version") if isinstance(told, dict) else None
            raise ConfigError(
                Fault(f"is of version {found}, this nightlab reads {VERSION}", file, mend="dump the logits again")
            )
        try:
            return cls(
                str(told["fingerprint"]),
                int(told["vocabulary"]),
                int(told["k"]),
                tuple(float(one) for one in told["temperatures"]),
                str(told["precision"]),
                str(told["teacher"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(Fault(f"is no header of a logit cache: {error!r}", file)) from error


def targets_of(example: Mapping[str, Any]) -> list[int]:
    """Positions of the tokens that are learned: their label is not -100, and a token stands before them.

    Raises ConfigError for an example without `input_ids` and `labels` of the same length, and for packed ones: their
    examples see each other, or not, as the trainer's attention has it, which no cache can know.
    """
    tokens, labels = example.get("input_ids"), example.get("labels")
    if tokens is None or labels is None or len(tokens) != len(labels):
        raise ConfigError("an example has no input_ids and labels of the same length (tokenise the data first)")
    positions = example.get("position_ids")
    if "seq_lens" in example or (positions is not None and list(positions) != list(range(len(tokens)))):
        raise ConfigError("the examples are packed, which a logit cache does not support (turn packing off)")
    return [place for place, label in enumerate(labels) if place and label != IGNORED]


def key_of(tokens: Sequence[int], labels: Sequence[int]) -> int:
    """Which example this is, from its content alone: shuffled or filtered data find their rows."""
    content = np.asarray([tokens, labels], dtype="<i8").tobytes()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def fingerprint_of(vocabulary: Mapping[str, int]) -> str:
    """Short hash of a tokenizer's tokens and their numbers (`tokenizer.get_vocab()`)."""
    lines = (
        f"{number} {token!r}\n" for token, number in sorted(vocabulary.items(), key=lambda item: (item[1], item[0]))
    )
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]
