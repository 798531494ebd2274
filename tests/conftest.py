"""What several rooms' tests look at."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.task import make_repository

# Before anything imports numpy: on small matrices several threads cost more than they give.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
# Whoever starts the tests in the background may have them ignore these, and what they start would inherit it.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)
# What is printed must not depend on the terminal the tests were started from, nor on their running side by side.
os.environ["COLUMNS"] = "120"


@pytest.fixture(scope="session")
def finished_night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study file of one finished night, in its repository; to be looked at only."""
    from nightlab.night import run_night

    file = make_repository(tmp_path_factory.mktemp("finished") / "repo")
    run_night(file, say=lambda _: None)
    return file
