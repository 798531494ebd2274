"""What a model is shown of the training repository: the base commit's files, the most important first, within bounds.

Everything comes from git, so that neither a half-saved file nor the time of day changes a prompt; data that git does
not hold are sampled from the study's inputs. Secrets are taken out before anything is cut, and every text is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from nightlab.agents.context import Lab
from nightlab.agents.prompts import quoted
from nightlab.agents.samples import first_rows, is_data, is_private, samples_of_inputs
from nightlab.worktrees.git import is_below

__all__ = ["Excerpt", "Reading", "quoted_within", "read_repository"]

LARGEST_BYTES = 1 << 20
"""Files above it are generated: no part of them is shown."""
LARGEST_DATA_BYTES = 1 << 25
LEAST_ROOM = 160
MOST_FILES = 24
MOST_OF_A_KIND = 8
MOST_SAMPLES = 3
SAMPLED = "data, its first rows"
REST = "further code"
TREE_SHARE = 0.15
CODE = frozenset({".py", ".sh", ".ipynb", ".cu", ".cpp", ".c", ".rs", ".go", ".jl", ".r", ".lua"})
CONFIGURATION = frozenset({".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".jinja", ".jinja2"})


@dataclass(frozen=True)
class Excerpt:
    """A piece of a file; both texts are quoted."""

    kind: str
    """What it is, in our words: `started by the command`, `configuration`, `data, its first rows` …"""
    path: str
    text: str


@dataclass(frozen=True)
class Reading:
    """What fits, ready to be put into a prompt."""

    tree: str
    """All files with their sizes, quoted."""
    excerpts: tuple[Excerpt, ...]


def read_repository(lab: Lab, limit_bytes: int) -> Reading:
    """What is worth reading before the first experiment, in at most `limit_bytes` of UTF-8."""
    files = {path: size for path, size in lab.git.files_at(lab.base_commit).items() if not _is_kept_out(lab, path)}
    tree = quoted_within(lab.redactor.redact(_tree(files)), int(limit_bytes * TREE_SHARE))
    room = limit_bytes - _size(tree)
    excerpts: list[Excerpt] = []
    for kind, path, text, share in _pieces(lab, files):
        if room < LEAST_ROOM or len(excerpts) == MOST_FILES:
            break
        most = min(room, int(limit_bytes * share)) - _size(quoted(path, 200)) - len(kind) - 8
        if most < LEAST_ROOM:
            continue
        excerpt = Excerpt(kind, quoted(lab.redactor.redact(path), 200), quoted_within(text, most))
        excerpts.append(excerpt)
        room -= _size(excerpt.text) + _size(excerpt.path) + len(kind) + 8
    return Reading(tree, tuple(excerpts))


def quoted_within(text: str, limit_bytes: int) -> str:
    """`text` quoted, its middle cut until it has at most `limit_bytes` of UTF-8, however much of it is escaped.

    Where not even the note on the cut fits, nothing is told.
    """
    # Most of a text far above the limit is cut anyway: it need not be quoted first.
    limit = min(len(text), limit_bytes)
    found = quoted(text, limit)
    while _size(found) > limit_bytes and limit > 0:
        limit = min(limit - 1, int(limit * limit_bytes / _size(found)))
        found = quoted(text, limit)
    return found if _size(found) <= limit_bytes else quoted("", 0)


def _size(text: str) -> int:
    return len(text.encode())


def _is_kept_out(lab: Lab, path: str) -> bool:
    # The study file may hold addresses and keys; what matters of it is told in our words.
    own = lab.study_file.relative_to(lab.paths.root).as_posix() if lab.study_file.is_relative_to(lab.paths.root) else ""
    return is_private(path) or path == own


def _tree(files: dict[str, int]) -> str:
    # What lies near the top comes first: a cut takes the middle of a list, so the least telling is put there.
    ordered = sorted(files, key=lambda path: (path.count("/"), path))
    return "\n".join(f"{path} {files[path]}" for path in ordered)


def _pieces(lab: Lab, files: dict[str, int]) -> Iterator[tuple[str, str, str, float]]:
    """Kind, path, text and share of the room, the most important first."""
    told: set[str] = set()
    for kind, paths, share in _kinds(lab, files):
        if kind == REST:
            places = [*lab.study.inputs, *lab.study.data.train_names]
            for path, rows in samples_of_inputs(lab.paths.root, places, _hidden(lab)):
                if path not in files:
                    yield SAMPLED, path, lab.redactor.redact(rows), 0.06
        for path in paths:
            if path not in told and (text := _text(lab, path, files[path], kind)):
                told.add(path)
                yield kind, path, text, share


def _hidden(lab: Lab) -> list[str]:
    """What no model may see of the data: what is measured with."""
    return [*lab.study.frozen, *lab.study.data.eval_names]


def _kinds(lab: Lab, files: dict[str, int]) -> Iterator[tuple[str, Sequence[str], float]]:
    frozen = [path for path in files if is_below(path, _hidden(lab))]
    rest = [path for path in files if path not in set(frozen)]
    scripts = [path for path in _named(lab, files) if path in rest or _suffix(path) in CODE]
    yield "started by the command", scripts, 0.4
    yield "imported by it", _imported(lab, files, scripts), 0.15
    data = [path for path in rest if is_data(path)]
    settings = [path for path in rest if _suffix(path) in CONFIGURATION and path not in set(data)]
    yield "configuration", _near(settings, files)[:MOST_OF_A_KIND], 0.1
    yield "read me", [path for path in rest if re.match(r"(readme|program)\b", path.lower())], 0.12
    # How it is measured may be read, also by whoever proposes; what it is measured with may not.
    yield "measures, frozen", _near([path for path in frozen if _suffix(path) in CODE], files), 0.12
    yield SAMPLED, _near(data, files)[:MOST_SAMPLES], 0.06
    yield REST, _near([path for path in rest if _suffix(path) in CODE], files), 0.12


def _named(lab: Lab, files: dict[str, int]) -> list[str]:
    """Files the command names, by path or as a module (`-m package.module`), and the framework's configuration."""
    launcher = lab.study.launcher
    words = [word for whole in launcher.words for word in re.split(r"[\s=;&|]+", whole)]
    words += [word.replace(".", "/") + ".py" for word in words] + [launcher.config or ""]
    folder = PurePosixPath(launcher.cwd)
    paths = [path for word in words for path in ((folder / word).as_posix(), word)]
    return list(dict.fromkeys(path for path in paths if path in files and _is_read(path)))


def _imported(lab: Lab, files: dict[str, int], scripts: list[str]) -> list[str]:
    """Files of the repository that the scripts import, not those these import in turn."""
    found = []
    for script in scripts:
        text = _text(lab, script, files[script], "")
        for module in re.findall(r"^\s*(?:from|import)\s+([\w.]+)", text, re.MULTILINE):
            inner = module.strip(".").replace(".", "/")
            places = [PurePosixPath(script).parent, PurePosixPath()]
            found += [(place / tail).as_posix() for place in places for tail in (f"{inner}.py", f"{inner}/__init__.py")]
    return list(dict.fromkeys(path for path in found if path in files and not is_below(path, scripts)))


def _near(paths: list[str], files: dict[str, int]) -> list[str]:
    """Nearest to the top first, then the larger ones."""
    return sorted(paths, key=lambda path: (path.count("/"), -files[path], path))


def _is_read(path: str) -> bool:
    return _suffix(path) in CODE | CONFIGURATION and not is_data(path)


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _text(lab: Lab, path: str, size: int, kind: str) -> str:
    """A file's text without secrets, of data the first rows; empty for what is binary or too large."""
    if not 0 < size <= (LARGEST_DATA_BYTES if kind == SAMPLED else LARGEST_BYTES):
        return ""
    text = lab.git.show_file(lab.base_commit, path)
    if "\0" in text or "\ufffd" in text[:4096]:
        return ""
    return lab.redactor.redact(first_rows(text) if kind == SAMPLED else text)
