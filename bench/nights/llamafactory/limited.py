"""LLaMA-Factory's command line on a device with too little memory: a batch of more than 16 rows does not fit.

    python limited.py train nightlab_train.yaml …        # as `llamafactory-cli train …`

The night plants this fault on purpose, with the error that torch raises on a GPU, to see it recognised and repaired.
"""

from __future__ import annotations

from typing import Any

import torch
from llamafactory.cli import main
from transformers import Trainer

MOST_ROWS = 16

_training_step = Trainer.training_step


def training_step(self: Trainer, model: torch.nn.Module, inputs: dict[str, Any], *rest: Any, **named: Any) -> Any:
    rows = len(inputs["input_ids"])
    if rows > MOST_ROWS:
        raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {rows * 64}.00 MiB (planted)")
    return _training_step(self, model, inputs, *rest, **named)


if __name__ == "__main__":
    Trainer.training_step = training_step
    main()
