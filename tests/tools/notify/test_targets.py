"""A bad target is found when the study is checked, and no message about it shows the URL."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nightlab.errors import ConfigError
from nightlab.tools.notify import check_targets, target_secrets
from nightlab.tools.notify.targets import open_targets
from nightlab.tools.redaction import Redactor

SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7/#night"


@pytest.mark.parametrize(
    "url",
    [
        "json://localhost:8080/path",
        SLACK,
        "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7",
        "feishu://abcd1234-ef56",
        "lark://abcd1234-ef56",
        "dingtalk://abcd1234",
        "mailtos://user:secret@example.org?to=me@example.org",
        "ntfy://night-topic",
    ],
)
def test_services_are_known(url: str) -> None:
    assert check_targets([url]) == []
    assert check_targets(["env:WHERE"], {"WHERE": url}) == []
    (target,) = open_targets(["env:WHERE"], {"WHERE": url})
    assert target.label == "WHERE"
    assert target.id == open_targets([url])[0].id
    assert target.id not in url


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("slack://s3cr3t", "the slack:// URL is not complete"),
        ("json://", "the json:// URL is not complete"),
        ("slak://s3cr3t/a/b", "is not the URL of a service that Apprise knows"),
        ("s3cr3t", "is not the URL"),
        ("", "is not the URL"),
        ("env:ABSENT", "variable ABSENT is not set"),
        ("env:EMPTY", "variable EMPTY is not set"),
        ("env:BAD", "is not the URL"),
    ],
)
def test_bad_targets_are_named_without_their_secrets(entry: str, words: str) -> None:
    faults = check_targets(["json://localhost", entry], {"EMPTY": "", "BAD": "s3cr3t"})
    assert [fault.key for fault in faults] == ["notify.targets.1"]
    assert words in str(faults[0])
    assert faults[0].mend
    assert "s3cr3t" not in str(faults[0])
    with pytest.raises(ConfigError):
        open_targets([entry], {"EMPTY": "", "BAD": "s3cr3t"})


def test_the_parts_of_a_url_that_services_echo_are_secrets() -> None:
    redactor = Redactor(target_secrets(["env:WHERE", "env:ABSENT", "json://localhost/hook"], {"WHERE": SLACK}))
    text = f"{SLACK} failed: url /services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7 on hooks"
    safe = redactor.redact(text)
    assert safe.startswith("[redacted:WHERE] failed")
    assert safe.endswith(" on hooks")
    for piece in ("T1JJ3T3L2", "A1BRTD4JD", "TIiajkdnlazkcOXrIdevi7"):
        assert piece not in safe
    assert redactor.redact("localhost") == "localhost"


def test_without_the_package_the_fault_says_how_to_install_it() -> None:
    code = (
        "import sys\n"
        "sys.modules['apprise'] = None\n"  # what an absent package looks like to `import`
        "from nightlab.tools.notify import check_targets\n"
        "sys.stdout.write(str(check_targets(['json://localhost'])[0]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        'notify.targets: notifications need the package apprise (install it with: pip install "nightlab[notify]")'
    )


def test_apprise_is_loaded_only_for_a_target() -> None:
    code = (
        "import sys\n"
        "from nightlab.tools.notify import Notifier, check_targets\n"
        "from nightlab.tools.redaction import Redactor\n"
        "assert check_targets([]) == [] and Notifier([], Redactor()).close(1)\n"
        "sys.stdout.write(str('apprise' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False"
