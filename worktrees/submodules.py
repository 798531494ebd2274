"""Fill a worktree's submodules, from the user's own copies where there are any; the user's config stays as it is."""

from __future__ import annotations

import re
from pathlib import Path

from nightlab.errors import GitError
from nightlab.worktrees.commits import inside
from nightlab.worktrees.git import Git
from nightlab.worktrees.registry import remove_folder

__all__ = ["init_submodules"]


def init_submodules(tree: Path) -> None:
    """Check out the submodules of `tree` at the commits it records, nested ones too; may be repeated.

    One that the user has switched off (`submodule.<name>.active = false`) stays empty. Raises GitError when a submodule
    can be had neither from the user's repository nor from its own address.
    """
    if (tree / ".gitmodules").is_file():
        _fill(Git(tree), Git(tree).common_dir)


def _fill(git: Git, home: Path) -> None:
    """`home` is the user's own git folder of the repository that `git` is a copy of."""
    for name, path in _settings(git, "path").items():
        folder = inside(git.root, path)
        if not folder.is_dir() or git.call("config", "--get", f"submodule.{name}.active")[1].strip() == b"false":
            continue
        if not _at_recorded_commit(git, path):
            _update(git, name, path, _source(git, name, home))
        if (folder / ".gitmodules").is_file():
            _fill(Git(folder), home / "modules" / name)


def _settings(git: Git, key: str) -> dict[str, str]:
    """Submodule name → its `key` in `.gitmodules`."""
    listed = git.call("config", "--file", ".gitmodules", "-z", "--get-regexp", rf"^submodule\..*\.{key}$")[1]
    rows = (row.split("\n", 1) for row in listed.decode(errors="surrogateescape").split("\0") if row)
    return {setting.removeprefix("submodule.").removesuffix(f".{key}"): value for setting, value in rows}


def _at_recorded_commit(git: Git, path: str) -> bool:
    recorded = git.call("rev-parse", "--verify", "--quiet", f"HEAD:{path}")[1]
    folder = git.root / path
    return (folder / ".git").exists() and Git(folder).call("rev-parse", "HEAD")[1] == recorded


def _source(git: Git, name: str, home: Path) -> str:
    """The user's own clone when it is at hand, for it needs no network; else the submodule's address."""
    own = home / "modules" / name
    if ".." not in Path(name).parts and (own / "HEAD").exists():
        return str(own)
    url = _settings(git, "url").get(name, "")
    if not url.startswith(("./", "../")):
        return url
    config = home / "config" if (home / "config").exists() else git.git_dir() / "config"
    remote = git.call("config", "--file", str(config), "--get", "remote.origin.url")[1].decode().strip()
    base = (remote or str(home.parent)).rstrip("/")
    while url.startswith(("./", "../")):
        step, _, url = url.partition("/")
        base = re.sub(r"[/:][^/:]*$", "", base) if step == ".." else base
    return f"{base}/{url}"


def _update(git: Git, name: str, path: str, source: str) -> None:
    settings = ("protocol.file.allow=always", f"submodule.{name}.active=true", f"submodule.{name}.url={source}")
    command = [part for setting in settings for part in ("-c", setting)]
    command += ["submodule", "--quiet", "update", "--checkout", "--force", "--", path]
    try:
        git.output(*command)
    except GitError:
        # A clone that was killed half way is in the way of the next one.
        remove_folder(git.git_dir() / "modules" / name)
        remove_folder(git.root / path / ".git")
        try:
            git.output(*command)
        except GitError as error:
            raise GitError(f"{error}; submodule {path} (run `git submodule update --init {path}` yourself)") from error
