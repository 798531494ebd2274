"""Edits are applied exactly or not at all; a diff is read for what it replaces, whatever its line numbers say."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightlab.agents.edits import apply_ideas, changed_lines, diff_text, edited, edits_of_diff
from nightlab.errors import PatchError
from nightlab.knowledge.records import Edit, Idea

FILES = {"train.py": "a = 1\nb = 2\na = 3\n", "model.py": "width = 64\n"}


def edit(search: str, replace: str, path: str = "train.py") -> Edit:
    return Edit(path=path, search=search, replace=replace)


def refused(*edits: Edit) -> str:
    with pytest.raises(PatchError) as told:
        edited(FILES.get, edits)
    return told.value.cause


def test_edits_of_one_file_build_on_each_other() -> None:
    after = edited(
        FILES.get, [edit("b = 2\n", "b = 20\n"), edit("b = 20\n", "b = 200\n"), edit("64", "32", "model.py")]
    )
    assert after == {"train.py": "a = 1\nb = 200\na = 3\n", "model.py": "width = 32\n"}


def test_what_is_not_there_exactly_once_is_refused() -> None:
    assert refused(edit("c = 1", "c = 2")) == "not-found"
    assert refused(edit("a = ", "a = 2")) == "ambiguous"
    assert refused(edit("a = 1", "a = 2", "other.py")) == "not-found"
    assert refused(edit("", "a = 2")) == "not-found"


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../train.py",
        "a/../train.py",
        "./train.py",
        ".git/config",
        "a/.GIT/x",
        "~/x",
        "a\\b",
        "",
        "a//b",
        "a\n",
        f"src/{'ä' * 128}.py",
    ],
)
def test_no_path_leaves_the_repository(path: str) -> None:
    assert refused(edit("", "x", path)) == "path"


def test_a_new_file_is_made_of_an_empty_search() -> None:
    assert edited(FILES.get, [edit("", "x = 1\n", "new.py")]) == {"new.py": "x = 1\n"}


def test_line_ends_of_the_file_are_kept() -> None:
    after = edited(lambda _: "a = 1\r\nb = 2\r\n", [edit("a = 1\nb", "a = 3\nc")])
    assert after == {"train.py": "a = 3\r\nc = 2\r\n"}


def test_ideas_are_applied_in_their_order_and_named_where_they_fail() -> None:
    first = Idea(number=1, name="first", edits=[edit("b = 2", "b = 3")])
    second = Idea(number=2, name="second", edits=[edit("b = 3", "b = 4")])
    assert apply_ideas(FILES.get, [second, first])["train.py"] == "a = 1\nb = 4\na = 3\n"
    with pytest.raises(PatchError, match=r"idea second: train\.py"):
        apply_ideas(FILES.get, [second])


def test_a_diff_with_wrong_line_numbers_is_applied_where_its_text_stands() -> None:
    diff = "--- a/train.py\n+++ b/train.py\n@@ -90,9 +91,4 @@ def f():\n a = 1\n-b = 2\n+b = 5\n\n"
    assert edited(FILES.get, edits_of_diff(diff)) == {"train.py": "a = 1\nb = 5\na = 3\n"}
    new = "diff --git a/x.py b/x.py\nnew file mode 100644\n--- /dev/null\n+++ b/x.py\n@@ -0,0 +1 @@\n+x = 1\n"
    assert edited(FILES.get, edits_of_diff(new)) == {"x.py": "x = 1\n"}


@pytest.mark.parametrize(
    "line", ["deleted file mode 100644", "rename from a", "new mode 100755", "Binary files a and b differ"]
)
def test_a_diff_that_does_more_than_change_text_is_refused(line: str) -> None:
    with pytest.raises(PatchError, match="text of files only"):
        edits_of_diff(f"diff --git a/x b/x\n{line}\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n")
    with pytest.raises(PatchError, match="no hunk"):
        edits_of_diff("I would change the learning rate.")


TEXTS = st.lists(st.sampled_from(["x = 1", "y = 2", "", "    return x", "-- a", "++ b", "@ c"]), max_size=12)


@given(TEXTS, TEXTS)
def test_a_diff_of_ours_gives_its_own_change_or_is_refused(old: list[str], new: list[str]) -> None:
    before, after = ("".join(f"{n} {line}\n" for n, line in enumerate(lines)) for lines in (old, new))
    diff = "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/f", "b/f"))
    if before == after or not before:
        return
    assert edited({"f": before}.get, edits_of_diff(diff)) == {"f": after}


def test_changed_lines_and_the_diff_for_people() -> None:
    after = {"train.py": "a = 1\na = 3\nc = 4", "new.py": "x\n"}
    assert changed_lines(FILES, after) == (2, 1)
    text = diff_text(FILES, after)
    assert "+++ b/train.py" in text and "-b = 2\n" in text and "+c = 4\n" in text and "+x\n" in text
