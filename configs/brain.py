"""Who fills in judgement: the built-in rules, or language models behind OpenAI-compatible endpoints."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from nightlab.configs.problems import Problem, refuse
from nightlab.configs.section import Section
from nightlab.configs.units import Duration

__all__ = ["BrainSettings", "Endpoint", "url_problem"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def url_problem(url: str) -> tuple[str, str] | None:
    """What is wrong with an endpoint's address, and the mend; None where nothing is. A key has no place in it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is no address", "for example http://localhost:8000/v1"
    if parts.scheme not in ("http", "https") or not host:
        return "is no http address", "for example http://localhost:8000/v1"
    if parts.username or parts.password or parts.query:
        return "holds more than an address", "leave out user, password and query; the key goes into the variable"
    if parts.path.rstrip("/").endswith("/chat/completions"):
        return "goes on too far", "end it before /chat/completions, usually with /v1"
    return None


class Endpoint(Section):
    """One model behind one OpenAI-compatible endpoint."""

    model: str
    """The model's name as the endpoint knows it."""
    base_url: str | None = None
    """The endpoint, e.g. `http://localhost:8000/v1`; without it the variable NIGHTLAB_BASE_URL, else OpenAI's own."""
    api_key_env: str = "NIGHTLAB_API_KEY"
    """Name of the variable of your shell that holds the key. The key itself is never written anywhere, and no job
    sees it. A server of your own may need none."""
    timeout_seconds: Duration = Field(default=120.0, alias="timeout")
    """How long one answer may take."""
    max_output_tokens: Annotated[int, Field(ge=64)] = 4096
    """Longest answer; so much is reserved of `budget.llm_tokens` before each call."""

    @model_validator(mode="after")
    def _usable(self) -> Endpoint:
        if self.base_url is not None and (wrong := url_problem(self.base_url)):
            refuse(Problem(wrong[0], ("base_url",), wrong[1]))
        if not _VARIABLE.fullmatch(self.api_key_env):
            mend = "write the variable's name, such as NIGHTLAB_API_KEY, and put the key into the variable"
            refuse(Problem("is not the name of a variable", ("api_key_env",), mend))
        return self


class BrainSettings(Section):
    """Who proposes, explains and reviews. Verdicts are computed whoever it is."""

    kind: Literal["rules", "llm"] = "rules"
    """`rules`: built in, no key, no network. `llm`: language models, and the rules where they do not answer."""
    endpoints: list[Endpoint] = Field(default_factory=list)
    """The models to ask, in this order: the next one where one does not answer. Without any, the variables
    NIGHTLAB_MODEL, NIGHTLAB_BASE_URL and NIGHTLAB_API_KEY name one."""
    reviewers: list[Endpoint] = Field(default_factory=list)
    """The models that review claims, in this order; better others than those that propose. Without any, the endpoints
    from the last to the first."""
    review: Literal["wins", "promising", "nothing"] = "wins"
    """Which claims a model reviews, beside the checks by code that every run passes: confirmed wins, promising ones
    too, or none."""
    max_prompt_tokens: Annotated[int, Field(ge=1024)] = 12_000
    """Longest prompt, however long the night: what does not fit is left out, the least important first."""
