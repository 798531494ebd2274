"""A logit cache on disk: what is written is read, a killed writer goes on, a damaged cache is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nightlab.errors import ConfigError
from nightlab.tools.distillation.cache import CacheWriter, LogitCache
from nightlab.tools.distillation.cache_files import fingerprint_of, key_of, targets_of
from tests.tools.distillation.pair import header, rows, write


@pytest.mark.parametrize(
    ("vocabulary", "precision", "types"),
    [(100, "float16", ("<u2", "<f2")), (100, "float32", ("<u2", "<f4")), (70_000, "float16", ("<u4", "<f2"))],
)
def test_what_is_written_is_read(tmp_path: Path, vocabulary: int, precision: str, types: tuple[str, str]) -> None:
    of = header(8, vocabulary=vocabulary, precision=precision)
    written = write(tmp_path / "cache", of, 3)
    cache = LogitCache(tmp_path / "cache", fingerprint="abc")
    assert (cache.header, len(cache), cache.rows) == (of, 3, 9)
    for key, given in written.items():
        found = cache.find(key, 3)
        assert (found.ids.dtype.str, found.logs.dtype.str) == types
        np.testing.assert_array_equal(found.ids, given.ids)
        np.testing.assert_array_equal(found.logs, given.logs.astype(types[1]))
        np.testing.assert_array_equal(found.tail, given.tail.astype(types[1]))


def test_the_files_are_as_documented(tmp_path: Path) -> None:
    written = write(tmp_path, header(8), 2)
    ids = np.fromfile(tmp_path / "ids.bin", "<u2").reshape(-1, 8)
    index = np.fromfile(tmp_path / "index.bin", "<u8").reshape(-1, 2)
    assert index.tolist() == [[key, 3 * (place + 1)] for place, key in enumerate(written)]
    np.testing.assert_array_equal(ids[3:], list(written.values())[1].ids)
    told = json.loads((tmp_path / "header.json").read_text())
    assert told == {
        "version": 1,
        "fingerprint": "abc",
        "vocabulary": 100,
        "k": 8,
        "temperatures": [1.0, 2.0],
        "precision": "float16",
        "teacher": "",
        "examples": 2,
        "rows": 6,
    }
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "header.json",
        "ids.bin",
        "index.bin",
        "logs.bin",
        "tail.bin",
    ]


def test_an_unfinished_cache_is_refused_and_goes_on(tmp_path: Path) -> None:
    of = header()
    write(tmp_path, of, 2, finish=False)
    with pytest.raises(ConfigError, match="is an unfinished cache"):
        LogitCache(tmp_path)
    with CacheWriter(tmp_path, of) as writer:
        assert (writer.examples, writer.rows) == (2, 6)
        assert key_of([0], [0]) in writer
        writer.add(key_of([0], [0]), rows(3, of))
        writer.add(7, rows(4, of))
        writer.finish()
    assert LogitCache(tmp_path).rows == 10


@pytest.mark.parametrize("name", ["ids.bin", "logs.bin", "tail.bin", "index.bin"])
def test_a_torn_end_costs_one_example(tmp_path: Path, name: str) -> None:
    of = header()
    written = write(tmp_path, of, 3, finish=False)
    os.truncate(tmp_path / name, (tmp_path / name).stat().st_size - 1)
    with CacheWriter(tmp_path, of) as writer:
        assert writer.examples == 2
        for key, some in written.items():
            writer.add(key, some)
        writer.finish()
    np.testing.assert_array_equal(LogitCache(tmp_path).find(list(written)[2], 3).ids, list(written.values())[2].ids)


KILLED = """
import sys
from pathlib import Path
from nightlab.tools.distillation.cache import CacheWriter
from tests.tools.distillation.pair import header, rows
with CacheWriter(Path(sys.argv[1]), header()) as writer:
    print(writer.examples, flush=True)
    for key in range(4000):
        writer.add(key, rows(2, header(), seed=key))
"""


def test_killed_at_any_moment_nothing_written_is_lost_or_twice_there(tmp_path: Path) -> None:
    for _ in range(3):
        job = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
        )
        assert job.stdout is not None
        before = int(job.stdout.readline())
        index = tmp_path / "index.bin"
        while index.stat().st_size <= 16 * (before + 20) and job.poll() is None:
            pass
        job.send_signal(signal.SIGKILL)
        job.wait()
        job.stdout.close()
    of = header()
    with CacheWriter(tmp_path, of) as writer:
        count = writer.examples
        assert count >= 60
        writer.finish()
    cache = LogitCache(tmp_path)
    for key in range(count):
        np.testing.assert_array_equal(cache.find(key, 2).ids, rows(2, of, seed=key).ids)


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    with CacheWriter(tmp_path, header()), pytest.raises(ConfigError, match="written by another process"):
        CacheWriter(tmp_path, header()).__enter__()


def test_where_nothing_was_written_yet_other_settings_may_begin(tmp_path: Path) -> None:
    """The first call ended before its first example: its template did not fit."""
    with CacheWriter(tmp_path, header(9)):
        pass
    write(tmp_path, header(8), 2)
    assert LogitCache(tmp_path).header == header(8)


def test_other_settings_do_not_go_on_with_a_cache(tmp_path: Path) -> None:
    write(tmp_path, header(8), 1, finish=False)
    with pytest.raises(ConfigError, match="begun with other settings"), CacheWriter(tmp_path, header(9)):
        pass
    with CacheWriter(tmp_path, header(8)) as writer:
        writer.finish()
    with pytest.raises(ConfigError, match="holds a finished cache"), CacheWriter(tmp_path, header(8)):
        pass


@pytest.mark.parametrize("name", ["ids.bin", "logs.bin", "tail.bin", "index.bin"])
def test_a_cut_or_missing_file_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    write(tmp_path, header(), 2)
    os.truncate(tmp_path / name, 5)
    with pytest.raises(ConfigError, match=rf"{name}: has 5 bytes, the header says [\d,]+ \(copy it again"):
        LogitCache(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ConfigError, match=f"{name}: has 0 bytes"):
        LogitCache(tmp_path)


def test_another_tokenizer_version_or_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "cache", header(), 1)
    with pytest.raises(ConfigError, match="another tokenizer"):
        LogitCache(tmp_path / "cache", fingerprint="other")
    with pytest.raises(ConfigError, match="is no logit cache"):
        LogitCache(tmp_path)
    told = tmp_path / "cache" / "header.json"
    told.write_text(told.read_text().replace('"version": 1', '"version": 9'))
    with pytest.raises(ConfigError, match="is of version 9, this nightlab reads 1"):
        LogitCache(tmp_path / "cache")


def test_an_example_the_cache_does_not_hold_is_refused(tmp_path: Path) -> None:
    write(tmp_path, header(), 2)
    cache = LogitCache(tmp_path)
    assert key_of([0], [0]) in cache and key_of([9], [9]) not in cache
    with pytest.raises(ConfigError, match="train on the very tokens that were dumped"):
        cache.find(key_of([9], [9]), 3)
    with pytest.raises(ConfigError, match="has 3 rows for an example with 4 targets"):
        cache.find(key_of([0], [0]), 4)


def test_an_empty_cache_is_a_cache(tmp_path: Path) -> None:
    write(tmp_path, header(), 0)
    assert len(LogitCache(tmp_path)) == 0


@pytest.mark.parametrize(
    "changes",
    [{"k": 0}, {"k": 101}, {"precision": "int8"}, {"temperatures": (2.0,)}, {"temperatures": (1.0, 1.0)}],
)
def test_a_header_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        header(**changes)


def test_targets_are_the_learned_tokens_with_one_before_them() -> None:
    assert targets_of({"input_ids": [5, 6, 7], "labels": [5, -100, 7]}) == [2]
    with pytest.raises(ConfigError, match="tokenise the data first"):
        targets_of({"text": "no tokens"})
    with pytest.raises(ConfigError, match="turn packing off"):
        targets_of({"input_ids": [5, 6, 7], "labels": [5, 6, 7], "position_ids": [0, 1, 0]})


def test_keys_and_fingerprints_tell_apart() -> None:
    keys = {key_of([1, 2], [1, 2]), key_of([1, 2], [-100, 2]), key_of([2, 1], [1, 2]), key_of([1], [1])}
    assert len(keys) == 4
    assert fingerprint_of({"a": 0, "b": 1}) == fingerprint_of({"b": 1, "a": 0}) != fingerprint_of({"a": 1, "b": 0})
