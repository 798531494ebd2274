"""A student trained from a cache against one trained beside its teacher: the same losses and the same weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from nightlab.errors import ConfigError  # noqa: E402
from nightlab.tools.distillation.cache import CacheWriter, LogitCache  # noqa: E402
from nightlab.tools.distillation.cache_files import targets_of  # noqa: E402
from nightlab.tools.distillation.dumping import dump  # noqa: E402
from nightlab.tools.distillation.losses import Direction, Distillation  # noqa: E402
from nightlab.tools.distillation.trainer import CachedDistillationTrainer, CachedLogitsCollator  # noqa: E402
from tests.tools.distillation.pair import VOCABULARY, examples, header  # noqa: E402

pytestmark = pytest.mark.train


def model(seed: int) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    return transformers.LlamaForCausalLM(config).eval()


def cache_of(folder: Path, k: int, data: list[dict[str, list[int]]]) -> LogitCache:
    with CacheWriter(folder, header(k, precision="float32")) as writer:
        dump(model(1), data, writer, batch_size=3)
        writer.finish()
    return LogitCache(folder, fingerprint="abc")


def trainer(
    folder: Path, cache: LogitCache, data: list[dict[str, list[int]]], loss: Distillation, **options: Any
) -> Any:
    settings = transformers.TrainingArguments(
        str(folder / "out"),
        per_device_train_batch_size=3,
        gradient_accumulation_steps=2,
        max_steps=3,
        learning_rate=1e-2,
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
        logging_steps=1,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    return CachedDistillationTrainer(model(2), settings, train_dataset=data, distillation=loss, cache=cache, **options)


def test_the_cache_holds_what_the_teacher_says_of_each_example_alone(tmp_path: Path) -> None:
    data = examples(7)
    cache, teacher = cache_of(tmp_path, 5, data), model(1)
    assert len(cache) == 7
    batch = CachedLogitsCollator(cache)(data)
    for place, example in enumerate(data):
        logs = torch.log_softmax(teacher(torch.tensor([example["input_ids"]])).logits[0], dim=-1)
        wanted = logs.topk(5, dim=-1)
        for target in targets_of(example):
            assert batch["teacher_ids"][place, target].tolist() == wanted.indices[target - 1].tolist()
            torch.testing.assert_close(batch["teacher_logs"][place, target], wanted.values[target - 1])


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_training_from_the_cache_is_training_beside_the_teacher(
    tmp_path: Path, direction: Direction, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A batch has more targets than that.
    monkeypatch.setattr("nightlab.tools.distillation.trainer.ROWS_AT_ONCE", 7)
    data, loss = examples(18), Distillation(alpha=0.7, temperature=2.0, direction=direction)
    ours = trainer(tmp_path, cache_of(tmp_path / "cache", VOCABULARY, data), data, loss)
    order = [list(batch["input_ids"].tolist()) for batch in ours.get_train_dataloader()]
    assert len(order) == 6
    transformers.set_seed(42)
    ours.train()
    losses = [entry["loss"] for entry in ours.state.log_history if "loss" in entry]

    student, teacher = model(2), model(1)
    optimiser = torch.optim.AdamW(student.parameters(), lr=1e-2, weight_decay=0.0)
    transformers.set_seed(42)
    batches = list(trainer(tmp_path, ours.cache, data, loss).get_train_dataloader())
    for step in range(3):
        pair = batches[2 * step : 2 * step + 2]
        tokens = sum(int((batch["labels"] != -100).sum()) for batch in pair)
        total = sum(on_line(student, teacher, batch, loss) for batch in pair) / tokens
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
        assert losses[step] == pytest.approx(total.item(), rel=1e-4)
    for one, other in zip(ours.model.parameters(), student.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def on_line(student: Any, teacher: Any, batch: dict[str, Any], loss: Distillation) -> Any:
    """The sum over the targets of CE + alpha T² KL with the teacher in memory."""
    seen = {name: batch[name] for name in ("input_ids", "attention_mask")}
    chosen = batch["labels"][:, 1:] != -100
    ours = student(**seen).logits[:, :-1][chosen]
    with torch.no_grad():
        theirs = teacher(**seen).logits[:, :-1][chosen]
    first, second = (torch.log_softmax(one / loss.temperature, dim=-1) for one in (theirs, ours))
    if loss.direction == "reverse":
        first, second = second, first
    kl = torch.nn.functional.kl_div(second, first, log_target=True, reduction="sum")
    ce = torch.nn.functional.cross_entropy(ours, batch["labels"][:, 1:][chosen], reduction="sum")
    return ce + loss.alpha * loss.temperature**2 * kl


def test_evaluation_is_cross_entropy_whatever_is_trained_and_the_kl_beside_it(tmp_path: Path) -> None:
    data, others = examples(6), examples(4, seed=9)
    cache = cache_of(tmp_path / "cache", 20, [*data, *others[:2]])
    metrics = [
        trainer(tmp_path, cache, data, Distillation(alpha, temperature)).evaluate(others[:2])
        for alpha, temperature in ((0.0, 1.0), (5.0, 2.0))
    ]
    assert metrics[0]["eval_loss"] == metrics[1]["eval_loss"]
    assert metrics[0]["eval_kl"] == metrics[1]["eval_kl"] > 0
    without = trainer(tmp_path, cache, data, Distillation()).evaluate(others)
    assert "eval_kl" not in without and np.isfinite(without["eval_loss"])


def test_a_student_of_another_vocabulary_and_a_loss_without_effect_are_refused(tmp_path: Path) -> None:
    data = examples(6)
    cache = cache_of(tmp_path / "cache", 10, data)
    ours = trainer(tmp_path, cache, data, Distillation())
    ours.model.resize_token_embeddings(50)
    with pytest.raises(ConfigError, match="the student has 50 logits, the cache is over 100 tokens"):
        ours.compute_loss(ours.model, CachedLogitsCollator(cache)([{"input_ids": [1, 2], "labels": [-100, -100]}]))
    with pytest.raises(ConfigError, match="would have no effect"):
        trainer(tmp_path, cache, data, Distillation(), compute_loss_func=max)


def test_the_log_tells_both_parts(tmp_path: Path) -> None:
    data, loss = examples(6), Distillation(alpha=0.5, temperature=2.0)
    ours = trainer(tmp_path, cache_of(tmp_path / "cache", 10, data), data, loss)
    ours.train()
    entry = next(entry for entry in ours.state.log_history if "loss" in entry)
    assert entry["loss"] == pytest.approx(entry["ce"] + 0.5 * 4 * entry["kl"], rel=1e-4)


def test_unknown_and_packed_examples_are_refused(tmp_path: Path) -> None:
    data = examples(6)
    cache = cache_of(tmp_path / "cache", 10, data)
    with pytest.raises(ConfigError, match="train on the very tokens that were dumped"):
        CachedLogitsCollator(cache)(examples(2, seed=3))
    packed = {"input_ids": [1, 2, 3, 4], "labels": [1, 2, 3, 4], "position_ids": [0, 1, 0, 1]}
    with pytest.raises(ConfigError, match="turn packing off"):
        CachedLogitsCollator(cache)([packed])


def test_dumping_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    data = examples(9)
    with CacheWriter(tmp_path, header(5, precision="float32")) as writer:
        dump(model(1), data[:5], writer, batch_size=2)
    asked = 0

    def count(module: Any, arguments: Any, options: Any) -> None:
        nonlocal asked
        asked += len(options["input_ids"])

    teacher = model(1)
    teacher.register_forward_pre_hook(count, with_kwargs=True)
    with CacheWriter(tmp_path, header(5, precision="float32")) as writer:
        dump(teacher, data, writer, batch_size=2)
        writer.finish()
    assert asked == 4 and len(LogitCache(tmp_path)) == 9


def test_a_saved_teacher_is_dumped_and_its_tokenizer_told(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    from nightlab.tools.distillation.cache_files import fingerprint_of
    from nightlab.tools.distillation.teachers import dump_file

    # The teacher pads its vocabulary beyond the tokenizer's, as many do.
    known = {f"t{number}": number for number in range(VOCABULARY - 4)}
    unknown = {"unk_token": "t0"}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(known, **unknown)), **unknown
    ).save_pretrained(tmp_path / "teacher")
    model(1).save_pretrained(tmp_path / "teacher")
    data = [{"input_ids": [1, 2, 3, 4], "labels": [-100, -100, 3, 4]}, {"input_ids": [5], "labels": [5]}]
    (tmp_path / "data.jsonl").write_text("".join(f"{json.dumps(example)}\n" for example in data))
    dump_file(str(tmp_path / "teacher"), tmp_path / "data.jsonl", tmp_path / "cache", k=500, dtype="float32")
    cache = LogitCache(tmp_path / "cache", fingerprint=fingerprint_of(known))
    assert (cache.examples, cache.rows, cache.header.vocabulary, cache.header.k) == (1, 2, 96, 96)
    with pytest.raises(ConfigError, match="cannot be loaded"):
        dump_file(str(tmp_path / "none"), tmp_path / "data.jsonl", tmp_path / "other")


def test_conversations_are_dumped_by_the_teachers_chat_template_and_the_student_trains_on_them(tmp_path: Path) -> None:
    from nightlab.tools.distillation.cache_files import fingerprint_of
    from nightlab.tools.distillation.teachers import EXAMPLES, dump_file, read_examples
    from tests.face.calling import call
    from tests.tools.distillation.chat import CHATML, byte_tokenizer

    marks = {"eos_token": "<|im_end|>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), **marks)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer) + 6,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=128,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "teacher")
    tokenizer.save_pretrained(tmp_path / "teacher")
    talks = [
        [{"role": "user", "content": f"Say {at}"}, {"role": "assistant", "content": f"{at} is {at}."}]
        for at in range(4)
    ]
    rows = [*({"messages": talk} for talk in talks), {"messages": talks[0][:1]}]
    (tmp_path / "talks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    words = ("distill", "logits", "--teacher", "teacher", "--examples", "talks.jsonl", "--out", "cache", "--k", "8")
    refused = call(tmp_path, *words)
    assert refused.status == 2 and "has no chat template (give one with --chat-template)" in refused.err
    (tmp_path / "chatml.jinja").write_text(CHATML)
    said = call(tmp_path, *words, "--chat-template", "chatml.jinja")
    assert said.status == 0, said.err
    assert "4 of 5 conversations as tokens in cache/examples.jsonl" in said.out
    assert "left out  1: is no conversation that ends with an answer" in said.out
    before = (tmp_path / "cache" / EXAMPLES).read_bytes()
    (tmp_path / "talks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[:2]))
    finished = call(tmp_path, *words, "--chat-template", "chatml.jinja")
    assert finished.status == 2 and "holds a finished cache" in finished.err
    assert (tmp_path / "cache" / EXAMPLES).read_bytes() == before
    other = call(tmp_path, *words, "--chat-template", "chatml.jinja", "--out", "other", "--json")
    told = json.loads(other.out)
    assert (told["examples"], told["rendered"]["written"]) == (2, 2)
    data = list(read_examples(tmp_path / "cache" / EXAMPLES))
    answers = [tokenizer.decode([label for label in one["labels"] if label != -100]) for one in data]
    assert answers == [f"{at} is {at}.<|im_end|>\n" for at in range(4)]
    tokenizer.chat_template = CHATML
    encoded = tokenizer.apply_chat_template(talks[1], tokenize=True, return_dict=True)
    assert data[1]["input_ids"] == list(encoded["input_ids"])
    cache = LogitCache(tmp_path / "cache", fingerprint=fingerprint_of(tokenizer.get_vocab()))
    assert cache.rows == sum(len(targets_of(one)) for one in data)
    student = transformers.LlamaForCausalLM(config)
    settings = transformers.TrainingArguments(
        str(tmp_path / "out"), max_steps=2, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True
    )
    trainer = CachedDistillationTrainer(
        student, settings, train_dataset=data, distillation=Distillation(alpha=1.0), cache=cache
    )
    assert trainer.train().training_loss > 0
    with pytest.raises(ConfigError, match=r"a row is refused by the chat template: .*unknown tag|Encountered unknown"):
        dump_file(str(tmp_path / "teacher"), tmp_path / "talks.jsonl", tmp_path / "o", chat_template="{% nonsense %}")
    with CacheWriter(tmp_path / "busy", LogitCache(tmp_path / "cache").header):
        with pytest.raises(ConfigError, match="is being written by another process"):
            dump_file(str(tmp_path / "teacher"), tmp_path / "talks.jsonl", tmp_path / "busy", k=8)
        assert not (tmp_path / "busy" / EXAMPLES).exists(), "what the other one reads is left alone"
