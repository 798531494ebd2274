"""`nightlab distill`: a teacher's answers as training data, or its logits in a cache for a student's loss."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightlab.cli.common import JsonOption, checked_output, checked_url, console, print_json

if TYPE_CHECKING:
    from nightlab.tools.distillation.answers import AnswerReport
    from nightlab.tools.distillation.rendering import Rendered

__all__ = ["register"]


def answers(
    prompts: Annotated[
        Path, typer.Option("--prompts", help="Rows to answer: alpaca, messages, lines.", metavar="FILE")
    ],
    out: Annotated[Path, typer.Option("--out", help="Training data to write, JSONL.", metavar="FILE")],
    model: Annotated[str, typer.Option("--model", help="The teacher, as the endpoint names it.")],
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="Endpoint; else NIGHTLAB_BASE_URL, else OpenAI's.", metavar="URL")
    ] = None,
    key_env: Annotated[str, typer.Option("--key-env", help="Variable that holds the key.")] = "NIGHTLAB_API_KEY",
    samples: Annotated[int, typer.Option("--samples", min=1, help="Answers a prompt.")] = 1,
    temperature: Annotated[float | None, typer.Option("--temperature", min=0.0, help="Else the server's own.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", min=0.0, max=1.0, help="Else the server's own.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Sent with each sample's number added.")] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Longest answer.")] = 1024,
    body: Annotated[
        str | None, typer.Option("--body", help="More of the request, a JSON object.", metavar="JSON")
    ] = None,
    budget_tokens: Annotated[
        int | None, typer.Option("--budget-tokens", min=1, help="At most so many, in all calls for this file.")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=256, help="Requests at the same time.")] = 4,
    timeout: Annotated[float, typer.Option("--timeout", min=1.0, help="Seconds one answer may take.")] = 120.0,
    form: Annotated[str, typer.Option("--format", help="alpaca or openai.")] = "alpaca",
    thinking: Annotated[str, typer.Option("--thinking", help="strip or keep.")] = "strip",
    shortest: Annotated[int, typer.Option("--shortest", min=1, help="Characters of an answer.")] = 1,
    longest: Annotated[int | None, typer.Option("--longest", min=1, help="Characters of an answer.")] = None,
    json_only: Annotated[bool, typer.Option("--json-only", help="Keep answers that are JSON.")] = False,
    agreement: Annotated[
        float | None,
        typer.Option("--agreement", help="Share of samples that must agree; one is kept.", metavar="SHARE"),
    ] = None,
    agree_on: Annotated[
        str | None, typer.Option("--agree-on", help="What must agree: a regular expression's group.", metavar="REGEX")
    ] = None,
    near_copies: Annotated[
        bool, typer.Option("--near-copies/--no-near-copies", help="Leave out near copies, or keep them.")
    ] = True,
    json: JsonOption = False,
) -> None:
    """Write a teacher's answers as training data.

    After a kill the same command goes on; nothing is asked twice.
    """
    from nightlab.errors import BudgetError, ConfigError, ModelError
    from nightlab.tools.distillation.answers import distill_answers
    from nightlab.tools.distillation.filters import Filters
    from nightlab.tools.distillation.teacher import Teacher

    if form not in ("alpaca", "openai") or thinking not in ("strip", "keep"):
        raise ConfigError("--format is alpaca or openai, --thinking is strip or keep")
    teacher = Teacher(
        model,
        checked_url(base_url or os.environ.get("NIGHTLAB_BASE_URL") or "https://api.openai.com/v1"),
        os.environ.get(key_env) or None,
        max_tokens,
        temperature,
        top_p,
        seed,
        _object(body, "--body"),
        timeout,
    )
    filters = Filters(thinking, shortest, longest, json_only, agreement, agree_on, near_copies)  # type: ignore[arg-type]
    report = distill_answers(
        prompts,
        checked_output(out),
        teacher,
        samples=samples,
        filters=filters,
        form=form,  # type: ignore[arg-type]
        budget_tokens=budget_tokens,
        workers=workers,
    )
    if json:
        print_json(_as_json(report))
    else:
        for line in _lines(report, out):
            console().print(line)
    if report.asked.out_of_budget:
        raise BudgetError(f"{report.asked.stopped}: {report.missing} are missing (raise --budget-tokens to go on)")
    if report.missing:
        reason = report.asked.stopped or next(iter(report.asked.unanswered), "")
        raise ModelError(f"{report.missing} answers are missing: {reason} (the same command asks again)")


def _object(text: str | None, key: str) -> dict[str, Any]:
    from json import loads

    from nightlab.errors import ConfigError, Fault

    try:
        told = loads(text or "{}")
    except ValueError as error:
        raise ConfigError(Fault(f"is no JSON: {error}", key=key)) from error
    if not isinstance(told, dict):
        raise ConfigError(Fault("is no JSON object", key=key))
    return told


def _text_of(file: Path) -> str:
    from nightlab.errors import ConfigError, Fault

    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Fault(f"cannot be read: {getattr(error, 'strerror', None) or error}", file)) from error


def _as_json(report: AnswerReport) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(report) | {"missing": report.missing}


def _lines(report: AnswerReport, out: Path) -> Iterator[str]:
    from nightlab.report.numbers import count
    from nightlab.tools.datasets.shingles import MISSING

    copies = count(report.copies, "copy", "copies")
    yield f"prompts   {report.prompts}, each {count(report.samples, 'time')}; {copies} asked once"
    if report.broken:
        yield f"no prompt {count(len(report.broken), 'row')}, the first: {report.broken[0]}"
    now = report.asked.answered
    yield f"answers   {report.answers}, {now} of them asked for now; {report.spent_tokens:,} tokens in all"
    for reason, number in (report.refused_by_server + report.asked.unanswered).most_common():
        yield f"no answer {number}: {reason}"
    for reason, number in report.dropped.most_common():
        yield f"left out  {number}: {reason}"
    if not report.looked_for_near_copies:
        yield MISSING
    yield f"rows      {report.rows} in {out}"


def logits(
    teacher: Annotated[str, typer.Option("--teacher", help="Folder or name of the model.")],
    examples: Annotated[
        Path,
        typer.Option(
            "--examples", help="Conversations, or tokenised: JSONL with input_ids and labels, a saved data set."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the cache.", metavar="FOLDER")],
    k: Annotated[int, typer.Option("--k", min=1, help="Tokens kept a position.")] = 64,
    temperature: Annotated[
        list[float] | None, typer.Option("--temperature", help="Known exactly; may be given again. 1, 2 and 4.")
    ] = None,
    precision: Annotated[str, typer.Option("--precision", help="Of the cache: float16 or float32.")] = "float16",
    dtype: Annotated[str, typer.Option("--dtype", help="Of the teacher: auto, bfloat16 or float32.")] = "auto",
    batch_size: Annotated[int, typer.Option("--batch-size", min=1)] = 8,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 …")] = "auto",
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run the model's own code.")] = False,
    learn: Annotated[str, typer.Option("--learn", help="Of a conversation: the last answer, or all.")] = "last",
    longest: Annotated[
        int | None, typer.Option("--longest", min=2, help="Tokens of a conversation; longer ones are left out.")
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option("--chat-template", help="Jinja, instead of the tokenizer's own.", metavar="FILE")
    ] = None,
    template_args: Annotated[
        str | None,
        typer.Option("--template-args", help='Of the chat template: {"enable_thinking": false}.', metavar="JSON"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a teacher's likeliest next tokens into a cache.

    After a kill the same command goes on.
    """
    from nightlab.errors import ConfigError

    if dtype not in ("auto", "bfloat16", "float32"):
        raise ConfigError("--dtype is auto, bfloat16 or float32")
    if learn not in ("last", "all"):
        raise ConfigError("--learn is last or all")
    given = _object(template_args, "--template-args")
    template = _text_of(chat_template) if chat_template else None
    checked_output(out, is_folder=True)
    try:
        from nightlab.tools.distillation.teachers import dump_file
    except ImportError as error:
        raise ConfigError(f'a teacher needs `pip install "nightlab[train]"` ({error.name} is missing)') from error
    dumped = dump_file(
        teacher,
        examples,
        out,
        k=k,
        temperatures=tuple(sorted({1.0, *(temperature or (2.0, 4.0))})),
        precision=precision,
        dtype=dtype,  # type: ignore[arg-type]
        batch_size=batch_size,
        device=device,
        trust_remote_code=trust_remote_code,
        learned="all" if learn == "all" else "last",
        longest=longest,
        chat_template=template,
        template_args=given,
    )
    writer, rendered = dumped.writer, dumped.rendered
    size = sum(file.stat().st_size for file in out.iterdir())
    told = {"examples": writer.examples, "rows": writer.rows, "bytes": size, **writer.header.to_json()}
    if json:
        print_json(told | ({"rendered": _rendered(rendered)} if rendered else {}))
    else:
        for line in _told_of(rendered) if rendered else ():
            console().print(line)
        console().print(
            f"{writer.examples} examples, {writer.rows} target tokens, {writer.header.k} of "
            f"{writer.header.vocabulary} tokens each, {size / 1e6:.1f} MB in {out}"
        )


def _rendered(rendered: Rendered) -> dict[str, Any]:
    counts = {"rows": rendered.rows, "written": rendered.written, "left_out": dict(rendered.left_out)}
    return {"file": str(rendered.file), **counts}


def _told_of(rendered: Rendered) -> Iterator[str]:
    yield f"{rendered.written} of {rendered.rows} conversations as tokens in {rendered.file}"
    for reason, number in rendered.left_out.most_common():
        yield f"left out  {number}: {reason}"
    if rendered.left_out:
        yield f"          the first is row {rendered.first_left_out}"


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(
        help="Learn from a teacher: its answers, or its logits in a cache.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command()(answers)
    group.command()(logits)
    app.add_typer(group, name="distill")
