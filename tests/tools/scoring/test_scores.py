"""Each score against its library over whole files, or against values worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sklearn.metrics import f1_score, roc_auc_score

from nightlab.configs.scoring import ScoringSettings
from nightlab.errors import MetricError
from nightlab.tools.scoring.score import score_file
from nightlab.tools.scoring.texts import TextRules, language_of, without_thoughts
from tests.tools.scoring.files import FIXTURE, pairs, scored

ROWS = [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()]
PREDICTIONS = [row["predict"] for row in ROWS]
LABELS = [row["label"].strip() for row in ROWS]

CHINESE = [
    ("今天天气很好", "今天天气真好\n"),
    ("我来到北京清华大学", "我来到北京清华大学\n"),
    ("帮我找一家便宜的酒店", "查找价格低廉的酒店 price < 300\n"),
]


def value(kind: str, **more: Any) -> float:
    return score_file(FIXTURE, ScoringSettings.model_validate({"kind": kind, **more})).value


def test_rouge_is_what_llamafactory_reported_for_the_same_file() -> None:
    # predict_results.json of the run that wrote the fixture; rouge_chinese works with six digits.
    assert value("rouge_1") == pytest.approx(48.44459, abs=1e-4)
    assert value("rouge_2") == pytest.approx(31.85389, abs=1e-4)
    assert value("rouge_l") == pytest.approx(48.44459, abs=1e-4)


def test_rouge_is_the_librarys() -> None:
    scorer = RougeScorer(["rougeL"])
    expected = sum(scorer.score(label, one)["rougeL"].fmeasure for one, label in zip(PREDICTIONS, LABELS, strict=True))
    assert value("rouge_l") == pytest.approx(100 * expected / len(ROWS))


def test_bleu_and_chrf_of_a_corpus_are_sacrebleus() -> None:
    assert value("bleu") == pytest.approx(BLEU().corpus_score(PREDICTIONS, [LABELS]).score)
    assert value("chrf") == pytest.approx(CHRF().corpus_score(PREDICTIONS, [LABELS]).score)


def test_the_mean_over_characters_is_llamafactorys_but_for_the_line_end_in_its_labels(tmp_path: Path) -> None:
    smoothing = SmoothingFunction().method3

    def mean(labels: list[str]) -> float:
        values = [
            round(100 * sentence_bleu([list(label)], list(one), smoothing_function=smoothing), 4)
            for one, label in zip(PREDICTIONS, labels, strict=True)
        ]
        return float(sum(values) / len(values))

    assert mean([row["label"] for row in ROWS]) == pytest.approx(44.876065), "predict_bleu-4 of that run"
    assert value("bleu_4") == pytest.approx(mean(LABELS))
    assert scored(tmp_path, pairs(("a right answer", "a right answer\n")), "bleu_4").value == pytest.approx(100)


def test_exact_match_passes_over_the_line_end_that_llamafactory_leaves(tmp_path: Path) -> None:
    right = sum(one == label for one, label in zip(PREDICTIONS, LABELS, strict=True))
    assert right == 4 and value("exact_match") == value("accuracy") == right / 40


@pytest.mark.parametrize(
    ("prediction", "label", "ignore"),
    [
        ("Paris", "paris", ["case"]),
        ("Paris!", "Paris", ["punctuation"]),
        ("你好,世界。", "你好世界", ["punctuation"]),
        ("in  the\tcity", "in the city", ["space"]),
        ("The city of an artist", "city of artist", ["articles"]),
        ("ＡＢＣ１２３", "ABC123", ["width"]),
        ("the Ｐaris.", "paris", ["case", "punctuation", "articles", "width"]),
    ],
)
def test_what_is_ignored_makes_no_difference(tmp_path: Path, prediction: str, label: str, ignore: list[str]) -> None:
    rows = pairs((prediction, label))
    assert scored(tmp_path, rows, "exact_match").value == 0
    assert scored(tmp_path, rows, "exact_match", ignore=ignore).value == 1


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>so\nand so</think>\n\n42", "\n\n42"),
        ("it was begun in the prompt</think>42", "42"),
        ("<think>cut off at the en", ""),
        ("4<think>a</think>2<think>b</think>", "42"),
        ("42", "42"),
        ("<think>a</think>4<think>b</think>2<think>", "42"),
        ("42" + "<think>" * 200_000, "42"),
    ],
    ids=lambda text: text[:20],
)
def test_thoughts_are_taken_out(text: str, left: str) -> None:
    assert without_thoughts(text) == left


def test_thoughts_count_unless_they_are_to_be_stripped(tmp_path: Path) -> None:
    rows = pairs(("<think>6 times 7</think>42", "42"))
    assert scored(tmp_path, rows, "exact_match").value == 0
    assert scored(tmp_path, rows, "exact_match", strip_thinking=True).value == 1


def test_f1_of_words_by_hand(tmp_path: Path) -> None:
    # Two common words of three and of four: 2 · 2 / 7. A repeated word counts once for each time it is wanted.
    assert scored(tmp_path, pairs(("cat sat down", "The cat sat there")), "f1").value == pytest.approx(4 / 7)
    assert scored(tmp_path, pairs(("cat cat cat", "cat")), "f1").value == pytest.approx(2 / 4)
    assert scored(tmp_path, pairs(("", "cat")), "f1").value == 0
    assert scored(tmp_path, pairs(("", "")), "f1").value == 1


def test_of_several_right_answers_the_best_counts(tmp_path: Path) -> None:
    rows = pairs(("the big apple", ["New York", "the big apple"]))
    for kind in ("exact_match", "f1"):
        assert scored(tmp_path, rows, kind).value == 1
    for kind in ("rouge_l", "chrf"):
        assert scored(tmp_path, rows, kind).value == pytest.approx(100)


def test_chinese_is_segmented_without_being_asked(tmp_path: Path) -> None:
    found = scored(tmp_path, pairs(*CHINESE), "rouge_l")
    assert found.language == "zh"
    # 今天天气 很 好 / 今天天气 真 好: two of three words; the second is right; 的 酒店 of 6 and 6 words.
    rules = TextRules("zh")
    assert rules.words("今天天气很好，") == ["今天天气", "很", "好"]
    given, wanted = (rules.words(text) for text in CHINESE[2])
    common = len(set(given) & set(wanted))
    assert (given[-2:], common) == (["的", "酒店"], 2)
    third = 2 * common / (len(given) + len(wanted))
    assert found.value == pytest.approx(100 * (2 / 3 + 1 + third) / 3)
    assert scored(tmp_path, pairs(*CHINESE), "f1").value == pytest.approx((2 / 3 + 1 + third) / 3)


def test_chinese_bleu_is_sacrebleus_for_chinese(tmp_path: Path) -> None:
    predictions, labels = [one for one, _ in CHINESE], [label.strip() for _, label in CHINESE]
    expected = BLEU(tokenize="zh").corpus_score(predictions, [labels]).score
    assert scored(tmp_path, pairs(*CHINESE), "bleu").value == pytest.approx(expected)
    assert scored(tmp_path, pairs(*CHINESE), "bleu", language="en").value != pytest.approx(expected)


def test_the_language_is_told_by_one_label_in_ten() -> None:
    assert language_of(["price"] * 9 + ["价格"]) == "zh"
    assert language_of(["price"] * 10 + ["价格"]) == "en"
    assert language_of([]) == "en"


def test_letters_of_any_script_make_words() -> None:
    assert TextRules("en").words("Für Élise, по-русски!") == ["für", "élise", "по", "русски"]


def test_macro_f1_is_over_the_classes_among_the_labels(tmp_path: Path) -> None:
    rows = pairs(("a", "a"), ("a", "b"), ("nonsense", "b"), ("b", "b\n"), ("c", "a"))
    # a: one right of two given and two wanted; b: one right of one given and three wanted.
    assert scored(tmp_path, rows, "macro_f1").value == pytest.approx((0.5 + 0.5) / 2)
    labels = ["a", "b", "b", "b", "a"]
    theirs = f1_score(labels, ["a", "a", "x", "b", "c"], labels=["a", "b"], average="macro", zero_division=0)
    assert scored(tmp_path, rows, "macro_f1").value == pytest.approx(theirs)


def test_auc_is_the_share_of_pairs_in_the_right_order(tmp_path: Path) -> None:
    rows = pairs((0.1, 0), ("0.4", False), (0.35, 1), (0.8, "true"))
    assert scored(tmp_path, rows, "auc").value == 0.75 == roc_auc_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])


def test_ndcg_and_mrr_from_lists_and_from_rows_of_a_query(tmp_path: Path) -> None:
    lists = pairs(([0.1, 0.9, 0.5], [3, 0, 2]), ([0.9, 0.1], [1, 0]))
    rows = [
        {"query": name, "predict": one, "label": label}
        for name, row in zip("ab", lists, strict=True)
        for one, label in zip(row["predict"], row["label"], strict=True)  # type: ignore[call-overload]
    ]
    # By score the relevances are 0, 2, 3: gains 2/log2(3) + 3/2 of the best 3 + 2/log2(3); the second query is right.
    expected = ((2 / 1.5849625 + 3 / 2) / (3 + 2 / 1.5849625) + 1) / 2
    for these, more in ((lists, {}), (rows, {"group_by": "query"})):
        assert scored(tmp_path, these, "ndcg", k=3, **more).value == pytest.approx(expected)
        assert scored(tmp_path, these, "mrr", **more).value == pytest.approx((1 / 2 + 1) / 2)
        assert scored(tmp_path, these, "mrr", **more).examples == 2


def test_a_model_that_scores_all_candidates_alike_ranks_none_of_them_first(tmp_path: Path) -> None:
    assert scored(tmp_path, pairs(([1, 1, 1, 1], [0, 1, 0, 0])), "mrr").value == 0.25
    assert scored(tmp_path, pairs(([1, 2], [0, 0])), "mrr").value == 0


def test_pass_at_k_without_bias(tmp_path: Path) -> None:
    rows = pairs(([True, False, False, False], None), ([True, True, True, False], None))
    # 1 − C(3, 2) / C(4, 2) and 1 − C(1, 2) / C(4, 2).
    assert scored(tmp_path, rows, "pass_at_k", k=2).value == pytest.approx((0.5 + 1) / 2)
    single: list[dict[str, object]] = [{"task": "t", "passed": flag} for flag in (True, 0, "false", False)]
    at_one = scored(tmp_path, single, "pass_at_k", k=1, group_by="task", prediction="passed")
    assert (at_one.value, at_one.examples) == (0.25, 1)


def test_json_must_be_valid_and_have_its_keys(tmp_path: Path) -> None:
    rows = pairs(('{"a": 1}', ""), ("[1]", ""), ('{"a": NaN}', ""), ('{"a": 1', ""), ('```json\n{"a": 1}\n```', ""))
    assert scored(tmp_path, rows, "json_valid").value == 2 / 5
    assert scored(tmp_path, rows, "json_valid", required_keys=["a"]).value == 1 / 5
    thought = pairs(('<think>{</think>{"a": 1}', ""))
    assert scored(tmp_path, thought, "json_valid", strip_thinking=True).value == 1
    assert scored(tmp_path, [{"predict": {"a": 1}}], "json_valid").value == 1, "an object needs no label, nor quotes"


@pytest.mark.parametrize(
    ("kind", "rows", "more", "message"),
    [
        ("auc", pairs((0.1, 2), (0.2, 0)), {}, "line 1: '2' is not 0, 1, true or false"),
        ("auc", pairs((0.1, 1), ("high", 0)), {}, "line 2: 'high' is not a finite number"),
        ("auc", pairs((10**400, 1)), {}, "line 1: "),
        ("mrr", pairs((0.5, 1)), {}, "line 1: the label is no list (name the query's field in group_by"),
        ("ndcg", pairs(([1, 2], [1])), {"k": 3}, "line 1: 1 labels and 2 predictions are no pairs"),
        ("ndcg", pairs(([1], [1])), {"k": 3}, "line 1: one candidate alone is no ranking"),
        ("pass_at_k", pairs(([True], None)), {"k": 2}, "line 1: 1 samples are fewer than k = 2"),
        ("macro_f1", pairs(("a", ["a", "b"])), {}, 'line 1: \'["a", "b"]\' is not one class'),
        ("f1", pairs(("a", [])), {}, "line 1: the label is an empty list"),
        ("f1", pairs(("a", None)), {}, "line 1: the label is null"),
    ],
)
def test_what_cannot_be_scored_is_told_with_its_line(
    tmp_path: Path, kind: str, rows: list[dict[str, object]], more: dict[str, object], message: str
) -> None:
    with pytest.raises(MetricError) as caught:
        scored(tmp_path, rows, kind, **more)
    assert caught.value.cause == "metric-unreadable" and str(caught.value).startswith(message)


def test_auc_of_one_class_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(MetricError) as caught:
        scored(tmp_path, pairs((0.1, 1), (0.2, 1)), "auc")
    assert caught.value.cause == "metric-not-finite"


@settings(max_examples=30)
@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), min_size=1, max_size=5))
def test_any_text_has_a_score_within_its_bounds(tmp_path_factory: pytest.TempPathFactory, texts: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("any")
    for kind, most in (("exact_match", 1), ("f1", 1), ("rouge_l", 100), ("bleu", 100), ("chrf", 100), ("bleu_4", 100)):
        assert 0 <= scored(folder, pairs(*texts), kind).value <= most + 1e-6
        same = scored(folder, pairs(*[(label, label) for _, label in texts]), kind)
        assert kind != "exact_match" or same.value == 1
