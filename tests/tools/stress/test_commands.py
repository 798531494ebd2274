"""What a stress check executes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from nightlab.configs.loading import load_study
from nightlab.tools.stress.commands import Place, stress_launch
from tests.task import write_study

ASK = """\
import os, sys, urllib.request
urllib.request.urlopen(sys.argv[1]).read()
print(sys.argv[2:], os.environ["NIGHTLAB_SEED"])
"""


def test_placeholders_are_filled_and_a_server_stands_around_the_command(tmp_path: Path) -> None:
    tree, results = tmp_path / "tree", tmp_path / "results"
    for folder in (tree, results):
        folder.mkdir()
    check = {
        "name": "serving",
        "serve": {
            "command": "{python} -m http.server {port} --bind 127.0.0.1 --directory {output_dir}",
            "ready": "http://127.0.0.1:{port}/",
            "timeout": "60s",
        },
        "command": ["{python}", "-c", ASK, "http://127.0.0.1:{port}/", "{lr}", "{{x}}", "{run_dir}", "{params_file}"],
        "metrics": {"p99_ms": {}},
    }
    study = load_study(write_study(tmp_path, stress=[check])).study
    place = Place(tree, tmp_path / "run", tmp_path, 1002, results)
    launch = stress_launch(study, study.stress[0], {**study.parameters, "lr": 0.01}, place)
    assert launch.command[0] == sys.executable and launch.cwd == tree / "."
    done = subprocess.run(
        launch.command, cwd=launch.cwd, env={**os.environ, **launch.env}, capture_output=True, text=True, check=False
    )
    told = ["0.01", "{x}", str(tmp_path / "run"), str(tree / "params.json")]
    assert (done.returncode, done.stdout.strip()) == (0, f"{told} 1002"), done.stderr
    assert "GET / HTTP" in (results / "server.log").read_text()
