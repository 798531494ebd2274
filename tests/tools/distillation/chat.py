"""A tokenizer as transformers', of real tokens and a real template, where transformers is not installed."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is false %}<think></think>{% endif %}"
    "{% endif %}"
)
FORGETFUL = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content.split('</think>')[-1] if message.role == 'assistant' and not loop.last else message.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As of models that think: the thoughts of earlier answers are taken out."""


def byte_tokenizer() -> Tokenizer:
    """Bytes and two merges as tokens, and the marks of ChatML."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("i", "s"), ("a", "n")]
    vocabulary = {token: number for number, token in enumerate([*alphabet, *("".join(pair) for pair in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>")])
    return tokenizer


class ChatTokenizer:
    """What `Renderer` asks of a tokenizer of transformers."""

    is_fast = True

    def __init__(self, chat_template: str | None = CHATML) -> None:
        self.chat_template, self._tokens = chat_template, byte_tokenizer()

    def apply_chat_template(self, messages: Any, *, tokenize: bool, add_generation_prompt: bool, **given: Any) -> str:
        assert not tokenize
        template = Environment().from_string(self.chat_template or "")  # noqa: S701
        return template.render(messages=messages, add_generation_prompt=add_generation_prompt, **given)

    def __call__(self, text: str, *, add_special_tokens: bool, return_offsets_mapping: bool) -> dict[str, Any]:
        assert not add_special_tokens and return_offsets_mapping
        encoded = self._tokens.encode(text, add_special_tokens=False)
        return {"input_ids": encoded.ids, "offset_mapping": encoded.offsets}

    def decode(self, ids: list[int]) -> str:
        return str(self._tokens.decode(ids, skip_special_tokens=False))
