"""Whom the lab tells what, and how it may be answered: what cannot work is a fault of the study file."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from nightlab.configs.checking import examine
from nightlab.configs.notify import AnswerPage, Notify
from tests.task import study_data


def test_nothing_is_heard_by_default() -> None:
    notify = Notify()
    assert not notify.hears and notify.answers.address is None and notify.stay_seconds == 12 * 3600


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:8765", ("127.0.0.1", 8765)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_addresses(listen: str, address: tuple[str, int]) -> None:
    page = AnswerPage(listen=listen)
    assert page.address == address and Notify(answers=page).hears
    assert AnswerPage(listen=listen, public_url="https://box.example/lab/").public_url == "https://box.example/lab/"


@pytest.mark.parametrize(
    ("answers", "key", "words"),
    [
        ({"listen": "8765"}, "notify.answers.listen", "is not an address with a port"),
        ({"listen": "127.0.0.1"}, "notify.answers.listen", "is not an address with a port"),
        ({"listen": "127.0.0.1:99999"}, "notify.answers.listen", "is not an address with a port"),
        ({"listen": "127.0.0.1:80/lab"}, "notify.answers.listen", "is not an address with a port"),
        ({"listen": "me@127.0.0.1:80"}, "notify.answers.listen", "is not an address with a port"),
        ({"listen": ":8765"}, "notify.answers.listen", "is not an address with a port"),
        ({"listen": "0.0.0.0:8765"}, "notify.answers.listen", "says of no address"),
        ({"listen": "[::]:8765"}, "notify.answers.listen", "says of no address"),
        ({"public_url": "https://box.example"}, "notify.answers.public_url", "leads nowhere"),
        *(
            (
                {"listen": "127.0.0.1:80", "public_url": url},
                "notify.answers.public_url",
                "not the address of a web page",
            )
            for url in ("box.example", "ftp://box", "https://", "https://a:b@box", "https://box?x=1", "https://b ox")
        ),
    ],
)
def test_what_cannot_work_is_named_with_its_mend(answers: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ValidationError):
        AnswerPage.model_validate(answers)
    study, found = examine(study_data(notify={"answers": answers}))
    assert study is None
    (fault,) = found
    assert ".".join(map(str, fault.at)) == key and words in fault.message and fault.mend
