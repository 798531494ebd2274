"""What a damaged ledger and a machine that dies around a command's start leave of a night: all of it."""

from __future__ import annotations

from pathlib import Path

from tests.torture.chaos import cuts_at_the_start
from tests.torture.damage import MOMENTS, Blow, beaten
from tests.torture.matrix import Reference
from tests.torture.nights import Nursery

BLOWS: list[Blow] = [
    (MOMENTS[0], "pages overwritten"),
    (MOMENTS[1], "random bytes"),
    (MOMENTS[4], "pages overwritten, its newest copy too"),
]


def test_a_night_whose_ledger_is_damaged_again_and_again_ends_like_an_undisturbed_one(
    nursery: Nursery, calm: Reference, tmp_path: Path
) -> None:
    result = beaten(nursery, tmp_path / "night", BLOWS, calm.night)
    assert [str(breach) for breach in result.breaches] == []
    assert result.faults == len(BLOWS)


def test_a_command_that_may_have_begun_when_the_machine_died_does_not_begin_again(
    nursery: Nursery, tmp_path: Path
) -> None:
    result = cuts_at_the_start(nursery, tmp_path / "night")
    assert [str(breach) for breach in result.breaches] == []
