"""What a person reads when a study asks for a score that cannot be computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.configs.loading import load_study
from nightlab.configs.study import Study
from nightlab.errors import ConfigError
from tests.configs.sample import changed

FILE = "kind: predictions, path: p.jsonl, "
KINDS = "exact_match, f1, bleu, bleu_4, rouge_1, rouge_2, rouge_l, chrf, accuracy, macro_f1, auc, ndcg, mrr, pass_at_k"


def study_with(tmp_path: Path, source: str) -> Path:
    file = tmp_path / "study.yaml"
    file.write_text(changed(("budget:\n", f"metrics:\n  val_bpb: {{{source}}}\nbudget:\n")))
    return file


def test_the_name_alone_stands_for_the_section_and_survives_the_ledger(tmp_path: Path) -> None:
    study = load_study(study_with(tmp_path, f"{FILE}score: exact_match")).study
    score = study.source_of("val_bpb").score
    assert score and (score.kind, score.label, score.prediction) == ("exact_match", "label", "predict")
    assert Study.model_validate(study.model_dump(mode="json")) == study


def test_a_score_that_is_to_be_minimised_is_doubted(tmp_path: Path) -> None:
    warnings = load_study(study_with(tmp_path, f"{FILE}score: f1")).warnings
    assert "minimises f1, which is better when larger (write maximize)" in "\n".join(map(str, warnings))


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (f"{FILE}score: exact", f"score: 'exact' is not a score (write one of {KINDS}, json_valid, or a section with"),
        (f"{FILE}score: {{kind: f2}}", f"score.kind: 'f2' is not one of {KINDS}, json_valid ("),
        (f"{FILE}score: {{kind: ndcg}}", "score.k: kind ndcg needs k (for example k: 10)"),
        (f"{FILE}score: {{kind: f1, k: 3}}", "score.k: belongs to ndcg, pass_at_k, not f1 (remove it)"),
        (
            f"{FILE}score: {{kind: f1, group_by: q}}",
            "score.group_by: belongs to ndcg, mrr, pass_at_k, not f1 (remove it)",
        ),
        (f"{FILE}score: {{kind: f1, ignor: [case]}}", "score.ignor: unknown key (did you mean `ignore`?)"),
        (
            f"{FILE}score: {{kind: f1, ignore: [cases]}}",
            "score.ignore[0]: 'cases' is not one of case, punctuation, space, articles, width (did you mean `case`?)",
        ),
        (f"{FILE}score: {{kind: auc, ignore: [case]}}", "score.ignore: ['case'] is about text, which auc does not"),
        (f"{FILE}score: {{kind: f1, slice_edges: [1]}}", "score.slice_edges: needs slice_by (for example slice_by:"),
        (
            f"{FILE}score: {{kind: f1, slice_by: n, slice_edges: [3, 1]}}",
            "score.slice_edges: does not rise (for example [100, 500])",
        ),
        ("kind: predictions, path: p.jsonl", "score: kind predictions needs a score (for example score: exact_match)"),
        ("kind: predictions, score: f1", "path: kind predictions needs a path (for example path: '{output_dir}/gen"),
        ("score: f1", "score: belongs to kind predictions, not lines (set kind: predictions)"),
        (f"{FILE}score: f1, pick: best", "pick: chooses among printed values; predictions are scored as a whole"),
    ],
)
def test_each_mistake_is_told_with_its_mend(tmp_path: Path, source: str, line: str) -> None:
    file = study_with(tmp_path, source)
    with pytest.raises(ConfigError) as caught:
        load_study(file)
    assert [str(fault).startswith(f"{file}:21: metrics.val_bpb.{line}") for fault in caught.value.faults] == [True], (
        str(caught.value)
    )
