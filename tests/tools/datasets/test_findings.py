"""Each finding from data that show it, and from none that do not; its symptoms are the catalog's."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from nightlab.knowledge.catalog import load_catalog
from nightlab.tools.datasets import findings as findings_module
from nightlab.tools.datasets import measuring
from nightlab.tools.datasets.findings import Finding
from nightlab.tools.datasets.languages import BY_SCRIPT
from tests.tools.datasets.files import figures_of, findings_of, write_json, write_lines

FIXTURES = Path(__file__).parent / "data"
ENGLISH = ["river", "stone", "window", "garden", "paper", "bridge", "morning", "copper", "forest", "candle", "harbor"]
CHINESE = list("山水风云花鸟鱼虫天地人和春夏秋冬东西南北金木土火日月星辰")


def sentences(number: int, words: list[str] = ENGLISH, *, length: int = 12, seed: int = 0) -> list[str]:
    rng, glue = random.Random(seed), " " if words is ENGLISH else ""  # noqa: S311
    return [glue.join(rng.choices(words, k=length)) for _ in range(number)]


def rows(number: int, words: list[str] = ENGLISH, *, seed: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Alpaca rows with nothing wrong with them."""
    prompts, answers = sentences(number, words, seed=seed), sentences(number, words, seed=seed + 1)
    return [{"instruction": p, "input": "", "output": a, **more} for p, a in zip(prompts, answers, strict=True)]


def about(found: list[Finding], words: str) -> Finding | None:
    """The one finding whose text matches; None where none does."""
    matching = [one for one in found if re.search(words, one.text)]
    assert len(matching) <= 1, matching
    return matching[0] if matching else None


def seen(found: list[Finding], words: str) -> Finding:
    finding = about(found, words)
    assert finding is not None, [one.text for one in found]
    return finding


def test_clean_data_say_nothing_but_what_they_are(tmp_path: Path) -> None:
    write_json(tmp_path / "train.json", rows(2_000))
    write_json(tmp_path / "eval.json", rows(300, seed=7))
    found = findings_of(tmp_path, train="train.json", eval="eval.json", window=64)
    assert not [one for one in found if one.symptoms or one.is_loud]
    assert seen(found, "2,000 training rows: median")
    assert seen(found, "No evaluation row stands in the training data")


def test_every_symptom_is_the_catalogs() -> None:
    source = Path(findings_module.__file__).read_text()
    named = set(re.findall(r'\("([a-z_]+)"(?:, "([a-z_]+)")?,?\)', source))
    words = {word for pair in named for word in pair if word}
    assert len(words) >= 10
    assert words <= load_catalog().meta.symptoms.keys()


def test_leakage_is_loud_and_comes_first(tmp_path: Path) -> None:
    train = rows(200)
    write_json(tmp_path / "train.json", train)
    same, other = train[:6], [{**row, "output": "quite another answer"} for row in train[6:10]]
    near = [{**row, "instruction": f"{row['instruction']}!"} for row in train[20:30]]
    write_lines(tmp_path / "eval.jsonl", [*same, *other, *near, *rows(30, seed=9)])
    found = findings_of(tmp_path, train="train.json", eval="eval.jsonl")
    leak = found[0]
    assert leak.text == "Leakage: 6 of 50 (12 %) evaluation rows are training rows, prompt and answer."
    assert leak.symptoms == ("data_dup",)
    assert [one.is_loud for one in found[:3]] == [True] * 3
    assert seen(found, r"^4 of 50 \(8 %\) evaluation rows have a prompt of the training data with another answer")
    assert seen(found, r"^10 of 50 \(20 %\) evaluation rows looked at are near copies")


def test_case_and_white_space_do_not_hide_a_leak(tmp_path: Path) -> None:
    train = rows(50)
    write_json(tmp_path / "train.json", train)
    write_json(tmp_path / "eval.json", [{**train[0], "instruction": f"  {train[0]['instruction'].upper()}\n"}])
    assert seen(findings_of(tmp_path, train="train.json", eval="eval.json"), r"Leakage: 1 of 1 \(100 %\)").is_loud


def test_a_fixed_instruction_makes_no_near_copies(tmp_path: Path) -> None:
    long = "You are a careful assistant. Rewrite the following query so that a search engine understands it. " * 3
    train = [{"instruction": long, "input": text, "output": text[::-1]} for text in sentences(200)]
    write_json(tmp_path / "train.json", train)
    assert about(findings_of(tmp_path, train="train.json"), "nearly repeat") is None


@pytest.mark.parametrize("words", [ENGLISH, CHINESE], ids=["english", "chinese"])
def test_exact_and_near_copies(tmp_path: Path, words: list[str]) -> None:
    base = rows(100, words)
    near = [{**row, "output": f"{row['output']}!"} for row in base[:10]]
    write_json(tmp_path / "train.json", [*base, *base[:5], *base[:5], *near])
    found = findings_of(tmp_path, train="train.json")
    copies = seen(found, "repeat an earlier one exactly")
    assert copies.text.startswith("10 of 120 (8.33 %)")
    assert copies.symptoms == ("data_dup",)
    assert seen(found, "nearly repeat an earlier one").text.startswith("10 of 110 (9.09 %)")
    assert seen(found, "10 training prompts have several different answers").symptoms == ("data_noise",)


def test_without_datasketch_near_copies_are_said_to_be_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasketch", None)
    monkeypatch.setitem(__import__("sys").modules, "py3langid", None)
    write_json(tmp_path / "train.json", rows(20))
    write_json(tmp_path / "eval.json", rows(20, seed=3))
    found = findings_of(tmp_path, train="train.json", eval="eval.json")
    assert seen(found, r"^Near copies were not looked for: `pip install")
    assert seen(found, r"No evaluation row stands in the training data \(near copies were not looked for")
    assert BY_SCRIPT in seen(found, "^Tokens estimated").text


def test_broken_rows_are_counted_by_reason_with_the_first_places(tmp_path: Path) -> None:
    bad = ['{"instruction": "cut', {"instruction": "no answer"}, {"instruction": "q", "output": None}, [1, 2], {"x": 1}]
    write_lines(tmp_path / "train.jsonl", [*rows(20), *bad])
    broken = seen(findings_of(tmp_path, train="train.jsonl"), "are broken")
    assert broken.is_loud
    assert broken.text.startswith("5 of 25 (20 %) rows of the training data are broken (")
    assert "is no JSON: 1" in broken.text
    assert broken.evidence[0] == "train.jsonl, row 21: is no JSON"
    assert len(broken.evidence) == 3


def test_a_file_of_nothing_but_broken_rows_or_of_none(tmp_path: Path) -> None:
    write_lines(tmp_path / "bad.jsonl", ["{", "}"])
    assert seen(findings_of(tmp_path, train="bad.jsonl"), "2 of 2").is_loud
    (tmp_path / "empty.json").write_text("[]")
    assert figures_of(tmp_path, train="empty.json").train is None
    assert seen(findings_of(tmp_path, train="empty.json"), "No row is in empty.json").is_loud


def test_lengths_against_the_window(tmp_path: Path) -> None:
    write_json(tmp_path / "train.json", [{"text": "word " * (80 if at < 12 else 8)} for at in range(100)])
    found = findings_of(tmp_path, train="train.json", window=50)
    assert seen(found, r"^12 % of the training rows are longer than 50 tokens").symptoms == ("truncation_high",)
    assert seen(findings_of(tmp_path, train="train.json", window=5), "100 % of the training rows are longer").is_loud
    waste = seen(findings_of(tmp_path, train="train.json", window=4_096), "of the window of 4,096 tokens on average")
    assert waste.symptoms == ("padding_waste",)


def test_chinese_counts_more_tokens_a_character(tmp_path: Path) -> None:
    for name, text in (("en.json", "a" * 300), ("zh.json", "好" * 300)):
        write_json(tmp_path / name, [{"text": text}])
    english, chinese = (figures_of(tmp_path, train=name).train for name in ("en.json", "zh.json"))
    assert english is not None
    assert chinese is not None
    assert (english.tokens.median, chinese.tokens.median) == (75, 200)


def test_a_tokenizer_counts_exactly(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?")  # noqa: S106
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    (tmp_path / "model").mkdir()
    tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
    write_json(tmp_path / "train.json", [{"instruction": "a b a", "output": "b"}] * 4)
    figures = figures_of(tmp_path, train="train.json", tokenizer="model")
    assert figures.train is not None
    assert (figures.train.tokens.median, figures.train.answer_tokens.median) == (4, 1)
    assert figures.counted == "counted by model"
    (tmp_path / "model" / "tokenizer.json").write_text("{")
    assert "estimated" in figures_of(tmp_path, train="train.json", tokenizer="model").counted


def test_labels_declared_and_seen_in_the_answers(tmp_path: Path) -> None:
    texts = sentences(220)
    answers = ["yes"] * 200 + ["no"] * 20
    plain = [{"instruction": text, "output": answer} for text, answer in zip(texts, answers, strict=True)]
    write_json(tmp_path / "answers.json", plain)
    found = seen(findings_of(tmp_path, train="answers.json"), "2 classes")
    assert found.symptoms == ("data_imbalance",)
    assert "`yes` in 200 of 220 (90.9 %) rows, `no` in 20" in found.text
    table = "text,label\n" + "".join(f"{text},{at % 2}\n" for at, text in enumerate(texts))
    (tmp_path / "labels.csv").write_text(table)
    assert seen(findings_of(tmp_path, train="labels.csv"), "2 classes").symptoms == ()
    own = [{"instruction": t, "output": t, "topic": "a\nb" if at else "c"} for at, t in enumerate(texts)]
    write_json(tmp_path / "own.json", own)
    own_found = seen(findings_of(tmp_path, train="own.json", columns={"label": "topic"}), "2 classes")
    assert "`a b` in 219" in own_found.text


def test_languages_and_a_shift_between_them(tmp_path: Path) -> None:
    english = [{"text": "The weather in the north was cold, and the ships could not leave the harbour."}] * 20
    chinese = [{"text": "北方天气寒冷，船只无法离开港口。今天的新闻说明天会好转。"}] * 20
    write_json(tmp_path / "en.json", english)
    write_json(tmp_path / "zh.json", chinese)
    write_json(tmp_path / "ja.json", [{"text": "北の天気は寒くて、船は港を出られませんでした。"}])
    figures = figures_of(tmp_path, train="en.json", eval="zh.json")
    assert figures.train is not None
    assert figures.eval is not None
    assert (figures.train.languages, figures.eval.languages) == ({"en": 1.0}, {"zh": 1.0})
    japanese = figures_of(tmp_path, train="ja.json").train
    assert japanese is not None
    assert japanese.languages == {"ja": 1.0}
    shift = seen(findings_of(tmp_path, train="en.json", eval="zh.json"), "different languages")
    assert shift.symptoms == ("shift",)
    assert "en 100 % against zh 100 %" in shift.text


def test_tokens_of_a_template_inside_texts(tmp_path: Path) -> None:
    bad = ["<|im_start|>user", "[INST] hi [/INST]", "<start_of_turn>model", "<｜User｜>", "fine</s>"]
    train = [{"instruction": f"{text} {bad[at % 5]}", "output": "x y z"} for at, text in enumerate(sentences(50))]
    write_json(tmp_path / "train.json", train)
    found = seen(findings_of(tmp_path, train="train.json"), "chat template adds itself")
    assert found.about == "prompt"
    assert found.symptoms == ("format_errors",)
    assert "`<|im_start|>` in 10" in found.text


@pytest.mark.parametrize(
    ("thoughts", "switch", "symptoms"),
    [
        (0, None, None),
        (0, False, None),
        (0, True, ("think_tags", "low_loss_low_metric")),
        (20, True, ()),
        (20, False, ("think_tags",)),
        (10, None, ("think_tags",)),
    ],
)
def test_thinking_in_answers_against_the_switch(
    tmp_path: Path, thoughts: int, switch: bool | None, symptoms: tuple[str, ...] | None
) -> None:
    train = rows(20)
    for row in train[:thoughts]:
        row["output"] = f"<think>\nhm\n</think>\n{row['output']}"
    write_json(tmp_path / "train.json", train)
    found = about(findings_of(tmp_path, train="train.json", thinking=switch), "think")
    assert (found.symptoms if found else None) == symptoms


def test_broken_encoding_and_empty_answers(tmp_path: Path) -> None:
    train = rows(20)
    train[0]["output"], train[1]["output"], train[2]["output"] = "caf\ufffd", "Ã©tÃ© Ã  la plage", "锟斤拷"
    train[3]["output"], train[4]["output"] = "", "  \n"
    write_json(tmp_path / "train.json", train)
    found = findings_of(tmp_path, train="train.json")
    assert seen(found, "broken encoding").text.startswith("3 of 20")
    assert seen(found, "empty answer").text.startswith("2 of 20 (10 %)")
    assert seen(found, "empty answer").is_loud


def test_pairs_that_are_equal_alike_or_told_apart_by_length(tmp_path: Path) -> None:
    good, bad = sentences(100, length=20), sentences(100, length=8, seed=4)
    pairs = [{"prompt": f"q{at}", "chosen": g, "rejected": b} for at, (g, b) in enumerate(zip(good, bad, strict=True))]
    for at in range(5):
        pairs[at]["rejected"] = pairs[at]["chosen"]
        pairs[10 + at]["rejected"] = f"{pairs[10 + at]['chosen']}."
    write_json(tmp_path / "train.json", pairs)
    found = findings_of(tmp_path, train="train.json")
    noise = seen(found, "both answers are the same")
    assert noise.text == "In 5 % of the pairs both answers are the same, in 5 % nearly."
    assert noise.symptoms == ("pref_noise",)
    assert seen(found, "length alone tells them apart").symptoms == ("verbose",)
    for pair in pairs:
        pair["rejected"] = pair["chosen"][::-1]
    write_json(tmp_path / "train.json", pairs)
    assert seen(findings_of(tmp_path, train="train.json"), "the longer one").symptoms == ()


def test_a_small_evaluation_tells_how_little_it_tells(tmp_path: Path) -> None:
    write_json(tmp_path / "eval.json", rows(100))
    assert seen(findings_of(tmp_path, eval="eval.json"), r"100 evaluation rows tell an accuracy to ±10 points")


def test_a_sample_is_the_same_every_time_and_keeps_copies_together(tmp_path: Path) -> None:
    base = rows(400)
    write_json(tmp_path / "train.json", [row for row in base for _ in range(2)])
    first = figures_of(tmp_path, train="train.json", sample=100)
    assert first.train is not None
    assert first.train.rows == 800
    assert first.train.sampled == 100
    assert first.train.copies == 50
    assert figures_of(tmp_path, train="train.json", sample=100) == first


def test_a_closer_look_at_part_of_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "CLOSE", 40)
    write_json(tmp_path / "train.json", rows(100))
    side = figures_of(tmp_path, train="train.json").train
    assert side is not None
    assert (side.sampled, side.close) == (100, 40)


def test_the_data_of_a_real_llamafactory_study(tmp_path: Path) -> None:
    """Cut from the data of a run that was done: 120 training rows, 40 for evaluation, 30 pairs."""
    shutil.copytree(FIXTURES, tmp_path / "data")
    found = findings_of(tmp_path, train="qr_train", eval="qr_test", info="data", window=128)
    assert seen(found, "120 training rows: median").about == "data"
    assert not [one for one in found if "Leakage" in one.text or "broken" in one.text]
    assert {s for one in found for s in one.symptoms} == {"data_small", "padding_waste"}
    pairs = findings_of(tmp_path, train="qr_dpo", info="data/dataset_info.json")
    assert seen(pairs, "the longer one in")
    assert json.loads((FIXTURES / "dataset_info.json").read_text())["qr_dpo"]["ranking"] is True
