"""The wheel holds real copies of every room and of the data the product needs, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent

NEEDED = {
    "nightlab/agents/templates/experiment.md.j2",
    "nightlab/cli/app.py",
    "nightlab/configs/examples/byte_lm/params.json",
    "nightlab/configs/examples/byte_lm/study.yaml",
    "nightlab/configs/examples/byte_lm/train.py",
    "nightlab/configs/templates/script.yaml",
    "nightlab/errors.py",
    "nightlab/graph/supervisor.py",
    "nightlab/knowledge/data/techniques.yaml",
    "nightlab/py.typed",
    "nightlab/report/templates/final_report.md.j2",
    "nightlab/search/engine.py",
    "nightlab/tools/backends/local_runner.py",
    "nightlab/tools/notify/templates/answer.html.j2",
    "nightlab/worktrees/trees.py",
}


def test_the_wheel_is_complete_and_runs(tmp_path: Path) -> None:
    # A copy of what git would hand out: building in the checkout would leave build/ behind.
    source = tmp_path / "source"
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    for name in filter(None, files):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            target.symlink_to((ROOT / name).readlink())
        elif (ROOT / name).exists():
            target.write_bytes((ROOT / name).read_bytes())
    wheels = tmp_path / "wheels"
    command = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(source)]
    subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    assert not NEEDED - names
    assert not [name for name in names if name.startswith(("nightlab/tests", "tests", "bench", "nightlab/.nightlab"))]
    code = "import nightlab.cli.app as a, sys; assert 'installed' in a.__file__, a.__file__; a.app(['catalog', 'list'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path / "installed"), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "120 techniques" in done.stdout
