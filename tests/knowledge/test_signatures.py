"""The built-in failure signatures are sound; a user's own file extends them, and its faults are told all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.configs.yaml_reader import read_yaml
from nightlab.errors import ConfigError
from nightlab.knowledge.signatures import BUILT_IN, Signatures, load_signatures

GOOD = """\
signatures:
- id: cuda_oom
  action: ask_user
- id: lab_quota
  regex: 'quota of project \\w+ is used up'
  example: 'ERROR quota of project qr is used up'
  cause: the project's GPU quota
  action: stop
  exit_codes: [42]
"""


@pytest.fixture
def signatures() -> Signatures:
    return load_signatures()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "my_failures.yaml"


def test_the_built_in_signatures_are_sound(signatures: Signatures) -> None:
    entries = signatures.entries
    assert len({entry.id for entry in entries}) == len(entries)
    assert sum(entry.source != "nightlab" for entry in entries) == 99
    for entry in entries:
        assert entry.pattern.search(entry.example), entry.id
        assert entry.category != "own" and entry.remedy and entry.source, entry.id


def test_no_exit_status_has_two_meanings(signatures: Signatures) -> None:
    codes = [code for entry in signatures.entries for code in entry.exit_codes]
    assert len(set(codes)) == len(codes)
    assert {137, 139} <= set(codes)


def test_the_built_in_file_means_the_same_to_every_yaml_reader(signatures: Signatures) -> None:
    document = read_yaml(BUILT_IN.read_text(encoding="utf-8"), BUILT_IN)
    assert document.faults == []
    assert [entry.model_dump(exclude_unset=True) for entry in signatures.entries] == document.data["signatures"]


def test_an_unknown_id_is_answered_with_the_closest(signatures: Signatures) -> None:
    with pytest.raises(ConfigError, match=r"'cuda_omm' is no failure signature \(did you mean cuda_oom\?\)"):
        signatures.get("cuda_omm")


def test_a_file_of_ones_own_adds_and_overrides(own: Path, signatures: Signatures) -> None:
    own.write_text(GOOD, encoding="utf-8")
    mine = load_signatures(own)
    assert mine.entries[0].id == "lab_quota"
    assert mine.get("lab_quota").role == "cause"
    assert mine.get("cuda_oom") == signatures.get("cuda_oom").model_copy(update={"action": "ask_user"})
    assert [entry.id for entry in mine.entries[1:]] == [entry.id for entry in signatures.entries]
    assert load_signatures() == signatures


def test_a_copy_of_the_built_in_file_is_a_good_start(own: Path, signatures: Signatures) -> None:
    own.write_bytes(BUILT_IN.read_bytes())
    assert load_signatures(own) == signatures


def test_every_fault_is_told_at_once_with_its_line(own: Path) -> None:
    own.write_text(
        """\
signature: []
signatures:
- id: cuda_oom
  acton: retry
- regex: x
- id: open
  regex: 'broken ('
  example: broken (
  cause: c
  action: retry
- id: blind
  regex: 'a*'
  example: aaa
  cause: c
  action: rety
- id: other
  regex: one line
  example: another line
  cause: c
  action: retry
- id: bare
  regex: bare
  example: bare
  role: victim
  exit_codes: [700]
- id: bare
- id: twisted
  regex: 'b|'
  example: b
  cause: c
  action: retry
""",
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        load_signatures(own)
    told = {(fault.line, fault.key) for fault in caught.value.faults}
    assert told == {
        (1, "signature"),
        (4, "signatures[0].acton"),
        (5, "signatures[1]"),
        (7, "signatures[2].regex"),
        (15, "signatures[3].action"),
        (18, "signatures[4].example"),
        (21, "signatures[5].cause"),
        (21, "signatures[5].action"),
        (24, "signatures[5].role"),
        (25, "signatures[5].exit_codes[0]"),
        (26, "signatures[6].id"),
        (28, "signatures[7].regex"),
    }
    assert all(fault.file == own and fault.mend and "\n" not in str(fault) for fault in caught.value.faults)
    text = str(caught.value)
    for part in (
        "did you mean action?",
        "did you mean retry?",
        "is not a regular expression: missing ), unterminated subpattern",
        "the regex does not match the example",
        "'victim' is not one of cause, consequence, symptom, warning",
        "matches an empty line",
        "begin it with `- id: my_signature`",
    ):
        assert part in text, part


def test_an_override_that_no_longer_finds_its_example_is_told(own: Path) -> None:
    own.write_text("signatures:\n- id: cuda_oom\n  regex: VRAM exhausted\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r":2: signatures\[0\]: the regex does not match the example"):
        load_signatures(own)
    own.write_text("signatures:\n- id: cuda_oom\n  regex: VRAM exhausted\n  example: VRAM exhausted\n")
    assert load_signatures(own).get("cuda_oom").cause == load_signatures().get("cuda_oom").cause


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b" \n", "is empty .*signatures:"),
        (b"signatures: {a: 1}\n", "holds no list of signatures"),
        (b"signatures: \xff\n", "is not UTF-8 text"),
        (b"signatures:\n- id: a\n  id: b\n", ":3: "),
    ],
)
def test_a_broken_file_is_told_in_one_line(own: Path, content: bytes, message: str) -> None:
    own.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_signatures(own)


def test_an_absent_file_is_told(own: Path) -> None:
    with pytest.raises(ConfigError, match=r"my_failures\.yaml: cannot be read: No such file .*failures\.file"):
        load_signatures(own)
