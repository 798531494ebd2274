"""Loads what a dump needs: a teacher by transformers, and examples as tokens (needs `nightlab[train]`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from nightlab.errors import ConfigError, Fault
from nightlab.tools.datasets.rows import read_rows
from nightlab.tools.distillation.cache import CacheWriter, refuse_finished
from nightlab.tools.distillation.cache_files import Header, fingerprint_of
from nightlab.tools.distillation.dumping import dump, vocabulary_of
from nightlab.tools.distillation.rendering import Learned, Rendered, Renderer, is_tokenised, render_file

__all__ = ["EXAMPLES", "Dumped", "Precision", "dump_file", "read_examples"]

Precision = Literal["bfloat16", "float32", "auto"]
EXAMPLES = "examples.jsonl"
"""In the cache's folder: conversations as the tokens that were dumped."""


@dataclass(frozen=True)
class Dumped:
    """A finished cache, and what became of the conversations where the examples were some."""

    writer: CacheWriter
    rendered: Rendered | None = None


def read_examples(path: Path) -> Iterator[Mapping[str, Any]]:
    """Objects with `input_ids` and `labels` from JSONL, or from a folder saved by `datasets` (LLaMA-Factory's
    `tokenized_path`), of which `train` is read. Raises ConfigError."""
    if path.is_dir():
        yield from _saved(path)
        return
    try:
        for row in read_rows(path):
            if row.fault or not isinstance(row.value, dict):
                raise ConfigError(Fault(f"row {row.number} {row.fault or 'is no object'}", path))
            yield row.value
    except OSError as error:
        raise ConfigError(Fault(f"cannot be read: {error.strerror or error}", path)) from error


def _saved(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise ConfigError(Fault("is a folder, which needs `pip install datasets`", path)) from error
    try:
        found = load_from_disk(str(path))
    except (OSError, ValueError) as error:
        raise ConfigError(Fault(f"is no saved data set: {error}", path)) from error
    parts = found if isinstance(found, dict) else {"train": found}
    if "train" not in parts:
        raise ConfigError(Fault(f"holds no part `train`, but {', '.join(parts)}", path))
    yield from parts["train"]


def dump_file(
    teacher: str,
    examples: Path,
    out: Path,
    *,
    k: int = 64,
    temperatures: tuple[float, ...] = (1.0, 2.0, 4.0),
    precision: str = "float16",
    dtype: Precision = "auto",
    batch_size: int = 8,
    device: str = "auto",
    trust_remote_code: bool = False,
    learned: Learned = "last",
    longest: int | None = None,
    chat_template: str | None = None,
    template_args: Mapping[str, Any] | None = None,
) -> Dumped:
    """Dump a teacher's k likeliest tokens for a file of examples; the writer tells how many there are.

    `teacher`: a folder or a name, with its tokenizer. `device` `auto`: a GPU where there is one. Examples that are
    conversations are rendered by the tokenizer's chat template first (`chat_template`: another one, `learned` to
    `template_args`: see `Renderer`) and written as tokens beside the cache. Raises ConfigError, DiskError.
    """
    refuse_finished(out)
    are_tokens = is_tokenised(examples)
    with _loading(teacher):
        config = AutoConfig.from_pretrained(teacher, trust_remote_code=trust_remote_code)
        tokenizer = AutoTokenizer.from_pretrained(teacher, trust_remote_code=trust_remote_code)
    numbers = tokenizer.get_vocab()
    vocabulary = vocabulary_of(config.get_text_config().vocab_size, numbers.values())
    header = Header(
        fingerprint_of(numbers), vocabulary, min(k, vocabulary), temperatures, precision, Path(teacher).name
    )
    rendered = None
    # The folder is claimed before anything is written into it: another process may be at work there.
    with CacheWriter(out, header) as writer:
        if not are_tokens:
            # Before the model is loaded, which takes long: a template that does not fit is told at once.
            tokenizer.chat_template = chat_template or tokenizer.chat_template
            renderer = Renderer(tokenizer, learned, longest, template_args or {})
            rendered = render_file(examples, out / EXAMPLES, renderer)
            examples = rendered.file
        with _loading(teacher):
            model = AutoModelForCausalLM.from_pretrained(teacher, dtype=dtype, trust_remote_code=trust_remote_code)
        place = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        dump(model.eval().to(place), read_examples(examples), writer, batch_size=batch_size)
        writer.finish()
    return Dumped(writer, rendered)


@contextmanager
def _loading(teacher: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise ConfigError(Fault(f"{teacher} cannot be loaded: {str(error).splitlines()[0]}", key="teacher")) from error
