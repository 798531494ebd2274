"""Files of every kind are read row by row; what cannot be read is a row with a fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nightlab.tools.datasets import rows as rows_module
from nightlab.tools.datasets.rows import Row, is_whole, read_rows


def written(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_an_array_larger_than_a_chunk(tmp_path: Path) -> None:
    values = [{"text": "x" * length, "at": at} for at, length in enumerate([1, 70_000, 5, 200_000, 0])]
    for indent in (None, 2):
        file = written(tmp_path / "a.json", json.dumps(values, indent=indent))
        assert list(read_rows(file)) == [Row(at + 1, value) for at, value in enumerate(values)]


@pytest.mark.parametrize("text", ["[]", " \n[ ]\n", '[{"a": 1}]', '\ufeff[{"a": 1},]'])
def test_short_arrays(tmp_path: Path, text: str) -> None:
    found = list(read_rows(written(tmp_path / "a.json", text)))
    assert [row.value for row in found] == ([{"a": 1}] if "1" in text else [])


def test_an_array_that_breaks_off_keeps_what_stands_before(tmp_path: Path) -> None:
    found = list(read_rows(written(tmp_path / "a.json", '[{"a": 1}, {"a": 2}, {"a":')))
    assert [row.value for row in found[:2]] == [{"a": 1}, {"a": 2}]
    assert len(found) == 3
    assert "is no JSON" in found[2].fault


def test_lines_of_which_one_is_broken(tmp_path: Path) -> None:
    found = list(read_rows(written(tmp_path / "a.jsonl", '{"a": 1}\n\n{"a": \r\n{"a": 3}')))
    assert [(row.number, row.value, row.fault) for row in found] == [
        (1, {"a": 1}, ""),
        (2, None, "is no JSON"),
        (3, {"a": 3}, ""),
    ]


def test_json_that_is_lines_all_the_same(tmp_path: Path) -> None:
    assert [row.value for row in read_rows(written(tmp_path / "a.json", '{"a": 1}\n{"a": 2}\n'))] == [
        {"a": 1},
        {"a": 2},
    ]


def test_bytes_that_are_no_utf8_become_replacement_characters(tmp_path: Path) -> None:
    found = list(read_rows(written(tmp_path / "a.txt", b"caf\xe9\n\xe4\xbd\xa0\n")))
    assert [row.value for row in found] == ["caf\ufffd", "你"]


def test_tables(tmp_path: Path) -> None:
    text = 'question,answer\n"a, b","two\nlines"\nonly one\nc,d\n'
    found = list(read_rows(written(tmp_path / "a.csv", text)))
    assert found[0] == Row(1, {"question": "a, b", "answer": "two\nlines"})
    assert found[1].fault == "has more or fewer cells than the header"
    assert found[2].value == {"question": "c", "answer": "d"}
    tabs = written(tmp_path / "a.tsv", "q\ta\nx\ty\n")
    assert [row.value for row in read_rows(tabs)] == [{"q": "x", "a": "y"}]


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"text": ["一", "b"]}), tmp_path / "a.parquet")
    assert [row.value for row in read_rows(tmp_path / "a.parquet")] == [{"text": "一"}, {"text": "b"}]


def test_of_a_large_file_whole_lines_are_read_from_its_whole_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "a.jsonl", "".join(json.dumps({"at": at}) + "\n" for at in range(10_000)))
    monkeypatch.setattr(rows_module, "LONGEST_READ", 20_000)
    assert not is_whole(file)
    found = list(read_rows(file))
    places = [row.value["at"] for row in found if isinstance(row.value, dict)]
    assert not [row for row in found if row.fault]
    assert len(set(places)) == len(places) < 3_000
    assert min(places) == 0
    assert max(places) > 9_500
    assert sorted(places) == places
    array = written(tmp_path / "a.json", json.dumps([{"at": at} for at in range(10_000)]))
    assert 1_000 < len(list(read_rows(array))) < 3_000


def test_a_parquet_file_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (row,) = read_rows(written(tmp_path / "a.parquet", b"PAR1 and nothing more"))
    assert row.fault.startswith("is no Parquet")


def test_json_nested_without_end(tmp_path: Path) -> None:
    deep = "[" * 100_000
    assert [row.fault for row in read_rows(written(tmp_path / "a.jsonl", f'{{"a": {deep}\n'))] == ["is no JSON"]
    assert "is no JSON" in next(read_rows(written(tmp_path / "a.json", deep))).fault


def test_an_array_of_short_rows_behind_a_long_one(tmp_path: Path) -> None:
    values = ["x" * (6 << 20), *range(400_000)]
    found = [row.value for row in read_rows(written(tmp_path / "a.json", json.dumps(values)))]
    # A number at the end of what was read may be cut in two.
    assert found[0] == values[0] and found[-1] == values[-1] and len(found) >= len(values)


def test_a_table_whose_header_has_no_end(tmp_path: Path) -> None:
    (row,) = read_rows(written(tmp_path / "a.csv", '"' + "a" * (rows_module.LONGEST_ROW + 1)))
    assert row.fault.startswith("is no table: ")
