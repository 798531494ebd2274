"""The section of the study file that says which data are measured for the diagnosis."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from nightlab.configs.problems import Problem, refuse
from nightlab.configs.section import Section

__all__ = ["DataFormat", "DataSettings"]

DataFormat = Literal["auto", "alpaca", "sharegpt", "openai", "preference", "kto", "text"]

Role = Literal[
    "prompt", "query", "response", "history", "system", "messages", "chosen", "rejected", "kto_tag", "label", "text"
]


class DataSettings(Section):
    """The data of the study, for the diagnosis to measure. Optional: without it nothing is read."""

    train: str | list[str] = Field(default_factory=list)
    """Files or folders that are trained on (`.json`, `.jsonl`, `.csv`, `.tsv`, `.txt`, `.parquet`), relative to the
    repository's top folder or absolute; with `info` also names in it."""
    eval: str | list[str] = Field(default_factory=list)
    """Files or folders of the evaluation data, likewise."""
    format: DataFormat = "auto"
    """How a row is laid out: `auto` tells by its keys; `alpaca` has columns for prompt and answer, `sharegpt` and
    `openai` a list of messages, `preference` a chosen and a rejected answer, `kto` an answer with a thumb up or down,
    `text` nothing but text."""
    columns: dict[Role, str] = Field(default_factory=dict)
    """What stands in which column, where the names are not the usual ones, e.g. `{prompt: question, response: answer}`.
    `label` names a class whose balance is looked at."""
    info: str | None = None
    """LLaMA-Factory's `dataset_info.json`: `train` and `eval` may then be names in it."""
    tokenizer: str | None = None
    """A `tokenizer.json` or the folder it lies in, to count tokens exactly; without it the base model's, when that is a
    folder, else an estimate by characters."""
    sample: Annotated[int, Field(ge=100)] = 20_000
    """Rows of each side that are looked at closely; of larger data a fixed sample, all rows of a prompt together."""

    @property
    def train_names(self) -> list[str]:
        return [self.train] if isinstance(self.train, str) else list(self.train)

    @property
    def eval_names(self) -> list[str]:
        return [self.eval] if isinstance(self.eval, str) else list(self.eval)

    @model_validator(mode="after")
    def _something_to_read(self) -> DataSettings:
        # Not by what was set: the ledger writes every field.
        given = self.columns or self.info or self.tokenizer or self.format != "auto"
        if given and not self.train_names and not self.eval_names:
            refuse(Problem("names no data", (), "add train: <file or folder>"))
        return self
