"""Lines of any log: bounded, cleaned, complete."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightlab.tools.metrics.lines import line_outcomes
from nightlab.tools.metrics.stream import clean, search_word, text_lines

PEAK_BYTES = 10 << 20


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("\x1b[1;32mloss\x1b[0m: \x1b[1m2.3\x1b[0m\x1b[K", "loss: 2.3"),
        ("\x1b[01;31m\x1b[Klo\x1b[m\x1b[Kss: 1", "loss: 1"),
        ("\x1b]0;title\x07loss: 1", "loss: 1"),
        ("\x1b]8;;http://x\x1b\\loss\x1b]8;;\x1b\\: 1", "loss: 1"),
        ("a\x1b[2Ab\x1b[10;20Hc", "a b c"),
        ("\x1b(Bloss: 1\x1b7", " loss: 1 "),
        ("\x90hidden: 1\x90x\x9closs: 1", "loss: 1"),
        ("\x90loss: 1", " loss: 1"),
        ("\x1b]0;a\x1b[1mloss: 1\x07", " ]0;aloss: 1 "),
        pytest.param("\x90" * 500_000, " " * 500_000, id="strings without an end"),
        ("2.3\x004", "2.3 4"),
        ("\ufeffloss: 1", "loss: 1"),
        ("tab\tstays, é stays", "tab\tstays, é stays"),
    ],
)
def test_escape_sequences_and_control_characters_go(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_newlines_and_carriage_returns_end_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a\r\nb\rc\n\n  \nd\xff\x80e")
    assert list(text_lines(tmp_path / "log")) == ["a", "b", "c", "d\ufffd\ufffde"]


def test_only_lines_with_the_word_are_given_even_when_coloured(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"acc: 1\nloss: 2\nx\x1b[1mlo\x1b[0mss: 3\n\x1b[1macc\x1b[0m: 4\n")
    assert list(text_lines(tmp_path / "log", containing="loss")) == ["loss: 2", "xloss: 3"]


@given(
    st.lists(st.text("ab 1\u00e9", max_size=30).filter(str.strip), max_size=40), st.sampled_from(["\n", "\r", "\r\n"])
)
def test_lines_come_back_in_order(tmp_path_factory: pytest.TempPathFactory, lines: list[str], ending: str) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(ending.join(lines).encode())
    assert list(text_lines(path, limit_bytes=64)) == lines


@pytest.mark.parametrize("size", [60, 200_000, 500_000])
def test_of_an_over_long_line_head_and_tail_are_kept_without_torn_tokens(tmp_path: Path, size: int) -> None:
    (tmp_path / "log").write_bytes(b"first 1\nloss=1.5 " + b"12345678 " * (size // 9) + b"loss=2.5\nlast\n")
    lines = list(text_lines(tmp_path / "log", limit_bytes=20))
    assert lines[0] == "first 1"
    assert lines[-1] == "last"
    assert lines[1].startswith("loss=1.5 ")
    assert lines[2].endswith("loss=2.5")
    assert all(set(line.split()) <= {"loss=1.5", "12345678", "loss=2.5"} for line in lines[1:-1])


def test_a_number_at_the_cut_is_dropped_not_torn(tmp_path: Path) -> None:
    for shift in range(40):
        line = b"x" * shift + b" loss=123.456 " + b"y" * 200_000 + b" loss=654.321 " + b"z" * shift
        (tmp_path / "log").write_bytes(line)
        found = " ".join(text_lines(tmp_path / "log", limit_bytes=30)).split()
        assert {word for word in found if "=" in word} <= {"loss=123.456", "loss=654.321"}


@pytest.mark.parametrize(
    ("name", "word"), [("val_bpb", "val_bpb"), ("eval/accuracy", "accuracy"), ("a b", "a"), ("é", "")]
)
def test_the_search_word_is_part_of_every_printed_name(name: str, word: str) -> None:
    assert search_word(name) == word


def peak_of_reading(path: Path) -> tuple[list[object], int]:
    tracemalloc.start()
    try:
        outcomes: list[object] = list(line_outcomes(path, "val_bpb"))
        return outcomes, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_large_log_is_read_in_flat_memory(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    block = b"".join(b"step %07d | loss: 2.345678 | lr: 3.0e-04 | tok/sec: 123456\n" % i for i in range(16_000))
    with path.open("wb") as log:
        for _ in range(50):
            log.write(block)
            log.write(b"val_bpb: 2.5\n")
    assert path.stat().st_size > 45_000_000
    outcomes, peak_bytes = peak_of_reading(path)
    assert outcomes == [2.5] * 50
    assert peak_bytes < PEAK_BYTES


@pytest.mark.parametrize("filler", [b"\x00", b"x", b"\xff\xfe", b"0 ", b"\x1b]"])
def test_one_huge_line_is_read_in_flat_memory(tmp_path: Path, filler: bytes) -> None:
    path = tmp_path / "stdout.log"
    with path.open("wb") as log:
        log.write(b"val_bpb: 2.5 ")
        for _ in range(20):
            log.write(filler * (1_000_000 // len(filler)))
        log.write(b" val_bpb: 2.25\nend\n")
    outcomes, peak_bytes = peak_of_reading(path)
    assert outcomes == [2.5, 2.25]
    assert peak_bytes < PEAK_BYTES
