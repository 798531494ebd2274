"""What should not stand in a text: a template's own tokens, thinking tags, broken encoding."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["has_encoding_fault", "has_thinking", "template_tokens"]

_TOKENS = re.compile(
    r"<\|(?:im_start|im_end|endoftext|eot_id|begin_of_text|end_of_text|start_header_id|end_header_id|user|assistant"
    r"|system|end|eom_id|observation)\|>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|<\uff5c[^<>\uff5c]{1,30}\uff5c>"
    r"|^<s>|</s>\s*$|^### (?:Instruction|Response):|<\|(?:vision_start|vision_end|image_pad)\|>",
    re.MULTILINE,
)
"""Of ChatML (Qwen), Llama 2 and 3, Mistral, Gemma, GLM, Phi, DeepSeek and the Alpaca prompt."""
_THINKING = re.compile(r"</?(?:think|thinking|reasoning)>", re.IGNORECASE)
_FAULT = re.compile(r"[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\u951f\u65a4\u62f7|\u70eb\u70eb\u70eb|\u5c6f\u5c6f\u5c6f")
"""Replacement and control characters, and what wrongly decoded Chinese turns into."""
LOOKED_AT = 4_000


def template_tokens(text: str) -> list[str]:
    """Special tokens that the template will add itself, each once."""
    return list(dict.fromkeys(found.strip() for found in _TOKENS.findall(text)))


def has_thinking(text: str) -> bool:
    return _THINKING.search(text) is not None


def has_encoding_fault(text: str) -> bool:
    """Whether the text holds what no writer wrote; mojibake such as `cafÃ©` is seen where ftfy is installed."""
    if _FAULT.search(text):
        return True
    badness = _badness()
    return badness is not None and not text.isascii() and bool(badness.is_bad(text[:LOOKED_AT]))


def _badness() -> Any:
    try:
        from ftfy import badness
    except ImportError:
        return None
    return badness
