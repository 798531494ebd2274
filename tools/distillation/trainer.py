"""A Hugging Face Trainer whose student learns from a logit cache: no teacher in memory (needs torch and transformers).

::

    cache = LogitCache(Path("cache"), fingerprint=fingerprint_of(tokenizer.get_vocab()))
    trainer = CachedDistillationTrainer(
        model, TrainingArguments(...), train_dataset=tokenised, distillation=Distillation(alpha=0.5, temperature=2),
        cache=cache, pad_token_id=tokenizer.pad_token_id,
    )
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from transformers import Trainer

from nightlab.errors import ConfigError
from nightlab.tools.distillation.cache import LogitCache
from nightlab.tools.distillation.cache_files import IGNORED, key_of, targets_of
from nightlab.tools.distillation.losses import Distillation, divergence

__all__ = ["CachedDistillationTrainer", "CachedLogitsCollator"]

TEACHER = ("teacher_ids", "teacher_logs", "teacher_tail")
ROWS_AT_ONCE = 1024
FORWARD = Distillation()
"""What `eval_kl` is measured by, whatever the student is trained with."""


@dataclass(frozen=True)
class CachedLogitsCollator:
    """Pads examples to a batch, each target with the teacher's row from the cache."""

    cache: LogitCache
    pad_token_id: int = 0
    optional: bool = False
    """Whether a batch with an example the cache does not hold goes without a teacher, as for evaluation data."""

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """`input_ids`, `attention_mask`, `labels` (batch, length) and the teacher's (batch, length, k or temperatures).

        Rows stand at the target's own place. Raises ConfigError for packed examples and those the cache has not.
        """
        batch = self._tokens(examples)
        keys = [key_of(example["input_ids"], example["labels"]) for example in examples]
        targets = [targets_of(example) for example in examples]
        if self.optional and any(places and key not in self.cache for key, places in zip(keys, targets, strict=True)):
            return batch
        widths = [width for _, width in self.cache.header.row_types.values()]
        shape = batch["labels"].shape
        teacher = [
            np.zeros((*shape, width), kind)
            for width, kind in zip(widths, (np.int32, np.float32, np.float32), strict=True)
        ]
        for place, (key, places) in enumerate(zip(keys, targets, strict=True)):
            if places:
                rows = self.cache.find(key, len(places))
                for whole, part in zip(teacher, (rows.ids, rows.logs, rows.tail), strict=True):
                    whole[place, places] = part
        return batch | {name: torch.from_numpy(whole) for name, whole in zip(TEACHER, teacher, strict=True)}

    def _tokens(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        longest = max(len(example["input_ids"]) for example in examples)
        tokens = torch.full((len(examples), longest), self.pad_token_id)
        mask, labels = torch.zeros_like(tokens), torch.full_like(tokens, IGNORED)
        for place, example in enumerate(examples):
            length = len(example["input_ids"])
            tokens[place, :length] = torch.tensor(example["input_ids"])
            mask[place, :length] = 1
            labels[place, :length] = torch.tensor(example["labels"])
        # Nothing stands before the first token, so it is no target; transformers would count it as one.
        labels[:, 0] = IGNORED
        return {"input_ids": tokens, "attention_mask": mask, "labels": labels}


class CachedDistillationTrainer(Trainer):  # type: ignore[misc]
    """Trains on `Distillation`'s loss; takes every argument of Trainer but its collator and its loss.

    Evaluates the cross-entropy alone (`eval_loss`), so that runs with different alpha and temperature can be compared,
    and `eval_kl`, the forward KL at temperature 1, where the cache holds the evaluation data. Logs `ce` and `kl` of
    the training steps. Raises ConfigError for a student with fewer logits than the cache's vocabulary.
    """

    data_collator: Any

    def __init__(
        self, *args: Any, distillation: Distillation, cache: LogitCache, pad_token_id: int = 0, **options: Any
    ) -> None:
        self.distillation, self.cache = distillation, cache
        super().__init__(*args, data_collator=CachedLogitsCollator(cache, pad_token_id), **options)
        # The collator needs what the model does not take.
        self.args.remove_unused_columns = False
        if self.args.label_smoothing_factor or self.compute_loss_func is not None:
            raise ConfigError("label_smoothing_factor and compute_loss_func would have no effect (leave them out)")
        if self.args.n_gpu > 1:
            raise ConfigError(f"one process drives {self.args.n_gpu} GPUs (start it with torchrun, one process a GPU)")
        # compute_loss divides by the number of tokens in all of a step's batches, whatever the model takes.
        self.model_accepts_loss_kwargs = True
        self._pad_token_id = pad_token_id
        self._trained, self._evaluated = _Sums(), _Sums()

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        own = self.data_collator
        self.data_collator = CachedLogitsCollator(self.cache, self._pad_token_id, optional=True)
        try:
            return super().get_eval_dataloader(eval_dataset)
        finally:
            self.data_collator = own

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The loss of one batch; a sum over its tokens divided by `num_items_in_batch` where that is given."""
        inputs = dict(inputs)
        teacher = [inputs.pop(name) for name in TEACHER if name in inputs]
        if "position_ids" in inputs or inputs["attention_mask"].dim() != 2:
            raise ConfigError("the batches are packed, which a logit cache does not support (turn packing off)")
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        at_targets = labels[:, 1:] != IGNORED
        logits, wanted = outputs.logits[:, :-1][at_targets], labels[:, 1:][at_targets]
        self._check_vocabulary(logits.shape[-1])
        ce, kl = self._summed(logits, wanted, [part[:, 1:][at_targets] for part in teacher], training=model.training)
        (self._trained if model.training else self._evaluated).add(ce, kl if teacher else None, len(wanted))
        weight = self.distillation.alpha * self.distillation.temperature**2 if model.training else 0.0
        is_counted = model.training and num_items_in_batch is not None
        loss = (ce + weight * kl if weight else ce) / (num_items_in_batch if is_counted else max(len(wanted), 1))
        if is_counted and self.args.average_tokens_across_devices:
            loss = loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    def _check_vocabulary(self, logits: int) -> None:
        if logits < self.cache.header.vocabulary:
            raise ConfigError(
                f"the student has {logits} logits, the cache is over {self.cache.header.vocabulary} tokens "
                "(a student needs its teacher's tokenizer)"
            )

    def _summed(self, logits: Any, wanted: Any, teacher: Sequence[Any], *, training: bool) -> tuple[Any, Any]:
        """Cross-entropy and divergence, each summed over the rows."""
        loss = self.distillation if training else FORWARD
        parts = zip(*(whole.split(ROWS_AT_ONCE) for whole in (logits, wanted, *teacher)), strict=True)
        # Computed once more in the backward pass: several copies of (rows, vocabulary) in float32 would not fit.
        again = logits.requires_grad and len(wanted) > ROWS_AT_ONCE
        sums = [
            checkpoint(self._sums_of, loss, *part, use_reentrant=False) if again else self._sums_of(loss, *part)
            for part in parts
        ]
        return sum(ce for ce, _ in sums), sum(kl for _, kl in sums)

    def _sums_of(self, loss: Distillation, logits: Any, wanted: Any, *teacher: Any) -> tuple[Any, Any]:
        ce = cross_entropy(logits.float(), wanted, reduction="sum")
        if not teacher:
            return ce, torch.zeros_like(ce)
        header = self.cache.header
        with torch.set_grad_enabled(torch.is_grad_enabled() and loss.alpha > 0):
            rows = divergence(logits[:, : header.vocabulary], *teacher, temperatures=header.temperatures, loss=loss)
        return ce, rows.sum()

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        if "loss" in logs:
            logs |= self._trained.means
            self._trained = _Sums()
        super().log(logs, *args, **options)

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **options: Any) -> Any:
        self._evaluated = _Sums()
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **options)
        sums = self.accelerator.reduce(self._evaluated.as_tensor(self.args.device), "sum")
        if "kl" in (means := _Sums(*sums.tolist()).means):
            output.metrics[f"{metric_key_prefix}_kl"] = means["kl"]
        return output


@dataclass
class _Sums:
    """Over target tokens; the sums stay on the device, as reading one would wait for it at every step."""

    ce: Any = 0.0
    tokens: float = 0
    kl: Any = 0.0
    tokens_with_teacher: float = 0

    def add(self, ce: Any, kl: Any, tokens: int) -> None:
        self.ce, self.tokens = self.ce + ce.detach(), self.tokens + tokens
        if kl is not None:
            self.kl, self.tokens_with_teacher = self.kl + kl.detach(), self.tokens_with_teacher + tokens

    def as_tensor(self, device: Any) -> Any:
        sums = (self.ce, self.tokens, self.kl, self.tokens_with_teacher)
        return torch.tensor([float(one) for one in sums], device=device)

    @property
    def means(self) -> dict[str, float]:
        found = {"ce": float(self.ce) / self.tokens} if self.tokens else {}
        return found | ({"kl": float(self.kl) / self.tokens_with_teacher} if self.tokens_with_teacher else {})
