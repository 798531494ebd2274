"""Before the night: whether the study's language models can be asked at all, and what each endpoint says when tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from nightlab.agents.conversation import is_local, key_of
from nightlab.agents.llm import Models, endpoints_of, models_of, reviewers_of
from nightlab.agents.servers import address_of, is_openai
from nightlab.configs.brain import Endpoint, url_problem
from nightlab.configs.study import Study
from nightlab.errors import Fault
from nightlab.knowledge.ledger import Ledger
from nightlab.tools.chat import METHODS, Method, Reply, Request, ask
from nightlab.tools.chat_faults import ChatError, FaultKind
from nightlab.tools.json_answers import answer_schema, parsed_answer

__all__ = ["Tried", "model_faults", "open_models", "try_models"]

LIBRARY = "langchain_openai"
PROBE_TOKENS = 512
"""Enough for a model that thinks before it answers."""


def model_faults(study: Study, file: Path, environment: Mapping[str, str]) -> list[Fault]:
    """Everything that keeps the study from asking its models and that can be seen without asking them."""
    if study.brain.kind == "rules":
        return []
    faults = [*_endpoint_faults(study, environment), *_price_faults(study, environment), *_key_faults(study)]
    if find_spec(LIBRARY) is None:
        faults.insert(0, Fault("`llm` needs langchain-openai", key="brain.kind", mend="pip install 'nightlab[llm]'"))
    return [replace(fault, file=file) for fault in faults]


def _endpoint_faults(study: Study, environment: Mapping[str, str]) -> Iterator[Fault]:
    endpoints = endpoints_of(study.brain, environment)
    if not endpoints:
        mend = "name one there, or set NIGHTLAB_MODEL (and NIGHTLAB_BASE_URL, NIGHTLAB_API_KEY), or use kind: rules"
        yield Fault("names no language model", key="brain.endpoints", mend=mend)
    if wrong := url_problem(environment.get("NIGHTLAB_BASE_URL") or "http://localhost"):
        yield Fault(f"the variable NIGHTLAB_BASE_URL {wrong[0]}", key="brain.endpoints", mend=wrong[1])
    named = [(f"brain.endpoints[{i}]", one) for i, one in enumerate(endpoints)]
    if study.brain.reviewers:
        named += [(f"brain.reviewers[{i}]", one) for i, one in enumerate(reviewers_of(study.brain, environment))]
    for key, endpoint in named:
        if not is_local(endpoint.base_url) and key_of(endpoint, environment) is None:
            variable = endpoint.api_key_env
            message = f"the variable {variable} is not set, and {address_of(endpoint)} wants a key"
            yield Fault(message, key=f"{key}.api_key_env", mend=f"export {variable}=… where nightlab is started")
        limit = study.budget.llm_tokens
        if limit is not None and limit <= endpoint.max_output_tokens:
            message = f"one answer may take {endpoint.max_output_tokens:,} tokens, budget.llm_tokens is {limit:,}"
            yield Fault(message, key=f"{key}.max_output_tokens", mend="raise the budget, or lower it")


def _price_faults(study: Study, environment: Mapping[str, str]) -> Iterator[Fault]:
    if study.budget.cost_usd is None:
        return
    asked = [*endpoints_of(study.brain, environment), *reviewers_of(study.brain, environment)]
    for model in dict.fromkeys(one.model for one in asked):
        if model not in study.prices.models:
            mend = f"add `{model}: {{input_million_usd: …, output_million_usd: …}}`, or `{{}}` if it costs nothing"
            message = f"holds no price of {model}, and with budget.cost_usd it would never be asked"
            yield Fault(message, key="prices.models", mend=mend)


def _key_faults(study: Study) -> Iterator[Fault]:
    variables = {one.api_key_env for one in (*study.brain.endpoints, *study.brain.reviewers)} or {"NIGHTLAB_API_KEY"}
    for position, name in enumerate(study.backend.pass_env):
        if name in variables:
            mend = "take it out; where the training needs a key of its own, give it another name"
            message = "would give the key of the language model to every job"
            yield Fault(message, key=f"backend.pass_env[{position}]", value=name, mend=mend)


def open_models(study: Study, ledger: Ledger, file: Path, environment: Mapping[str, str]) -> Models | None:
    """The models of a lab that starts; where they cannot be asked, the ledger says why and the rules decide."""
    if study.brain.kind == "rules":
        return None
    faults = model_faults(study, file, environment)
    for fault in faults:
        ledger.add_event("model", f"language models: {replace(fault, file=None)}")
    if find_spec(LIBRARY) is None:
        return None
    return models_of(study.brain, environment)


class Ready(BaseModel):
    """The smallest answer a model can be asked for."""

    ready: Literal["yes", "no"]


@dataclass(frozen=True)
class Tried:
    """What one endpoint did with one small question."""

    endpoint: Endpoint
    method: Method | None = None
    """How it took JSON; None where it did not answer."""
    reply: Reply | None = None
    problem: str = ""

    def line(self, study: Study) -> str:
        """It in words, for a person."""
        name = f"model {self.endpoint.model} at {address_of(self.endpoint)}"
        if self.reply is None or self.method is None:
            return f"note: {name} does not answer: {self.problem}"
        used = (self.reply.input_tokens or 0) + (self.reply.output_tokens or 0)
        told = f"{used:,} tokens" if used else "it does not tell its tokens, so its calls are booked at their most"
        cost = _cost(study, self.endpoint, self.reply)
        return f"{name}: answers in {self.reply.seconds:.1f} s, JSON by {self.method.replace('_', ' ')}, {told}{cost}"


def _cost(study: Study, endpoint: Endpoint, reply: Reply) -> str:
    price = study.prices.models.get(endpoint.model)
    if price is None:
        return "; without a price in prices.models"
    return f", ${price.cost_usd(reply.input_tokens or 0, reply.output_tokens or 0, reply.cached_tokens):.6f}"


def try_models(study: Study, environment: Mapping[str, str]) -> list[Tried]:
    """Ask each endpoint of the study one small question, without retries and outside the budget."""
    if study.brain.kind == "rules":
        return []
    asked = [*endpoints_of(study.brain, environment), *reviewers_of(study.brain, environment)]
    distinct = {(one.base_url, one.model): one for one in asked}
    return [_tried(one, key_of(one, environment)) for one in distinct.values()]


def _tried(endpoint: Endpoint, key: str | None) -> Tried:
    problem, newer_limit, methods = "", is_openai(endpoint), list(METHODS)
    while methods:
        try:
            reply = ask(_probe(endpoint, key, methods[0], newer_limit))
        except ChatError as error:
            problem = str(error)
            if error.kind is FaultKind.LIMIT_NAME and newer_limit == is_openai(endpoint):
                newer_limit = not newer_limit
                continue
            if error.kind is not FaultKind.UNSUPPORTED:
                break
        else:
            parsed = parsed_answer(Ready, reply.arguments or reply.content)
            if parsed.value is not None:
                return Tried(endpoint, methods[0], reply)
            problem = reply.refusal or parsed.problem
        methods.pop(0)
    return Tried(endpoint, problem=problem)


def _probe(endpoint: Endpoint, key: str | None, method: Method, newer_limit: bool) -> Request:
    return Request(
        base_url=endpoint.base_url or "",
        model=endpoint.model,
        key=key,
        turns=[("system", "Answer in JSON."), ("user", 'Are you ready? Answer {"ready": "yes"} or {"ready": "no"}.')],
        method=method,
        schema=answer_schema(Ready, lengths=False),
        max_output_tokens=min(PROBE_TOKENS, endpoint.max_output_tokens),
        timeout_seconds=min(60.0, endpoint.timeout_seconds),
        newer_limit=newer_limit,
    )
