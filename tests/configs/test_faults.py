"""What a person reads for each mistake: the exact lines."""

# The lines are whole on purpose.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.configs.loading import load_study
from nightlab.errors import ConfigError
from tests.configs.sample import SAMPLE, changed

Case = tuple[str, list[tuple[str, str]], str]

COMMAND = '"{python} train.py --seed {seed}"'

BROKEN: tuple[Case, ...] = (
    (
        "direction not among the options",
        [("minimize", "up")],
        "7: objective.direction: 'up' is not one of minimize, maximize (which way is better)",
    ),
    (
        "direction shortened",
        [("minimize", "max")],
        "7: objective.direction: 'max' is not one of minimize, maximize (did you mean `maximize`?)",
    ),
    (
        "study name with capitals",
        [("night-1", "My Night")],
        "1: study: 'My Night' does not suit a branch name (use a-z, 0-9 and inner hyphens, at most 40, for example my-night)",
    ),
    (
        "scenario ends in a hyphen",
        [("bytes", "bytes-")],
        "2: scenario: 'bytes-' does not suit a branch name (use a-z, 0-9 and inner hyphens, at most 40, for example bytes)",
    ),
    (
        "negative min_effect",
        [("min_effect: 1e-3", "min_effect: -0.1")],
        "8: objective.min_effect: -0.1 must be at least 0 (smallest improvement worth having, in the metric's unit)",
    ),
    (
        "min_effect with a decimal comma",
        [("min_effect: 1e-3", "min_effect: 0,01")],
        "8: objective.min_effect: '0,01' is not a number (write the decimal point as a point: 0.01)",
    ),
    (
        "min_effect a boolean",
        [("min_effect: 1e-3", "min_effect: true")],
        "8: objective.min_effect: true is not a number (smallest improvement worth having, in the metric's unit)",
    ),
    (
        "min_effect not finite",
        [("min_effect: 1e-3", "min_effect: .nan")],
        "8: objective.min_effect: .nan is not a finite number (smallest improvement worth having, in the metric's unit)",
    ),
    (
        "plausible reversed",
        [("[0.5, 8]", "[8, 0.5]")],
        "9: objective.plausible: [8, 0.5] is not [lowest, highest] (write the smaller number first)",
    ),
    (
        "plausible one number",
        [("[0.5, 8]", "[0.5]")],
        "9: objective.plausible: [0.5] is not a list of two numbers (write [lowest, highest])",
    ),
    (
        "plausible three numbers",
        [("[0.5, 8]", "[0.5, 1, 2]")],
        "9: objective.plausible: [0.5, 1, 2] is not a list of two numbers (write [lowest, highest])",
    ),
    (
        "plausible no list",
        [("[0.5, 8]", "8")],
        "9: objective.plausible: 8 is not a list of two numbers (write [lowest, highest])",
    ),
    ("key misspelt", [("direction:", "directoin:")], "7: objective.directoin: unknown key (did you mean `direction`?)"),
    (
        "key of another section",
        [("budget:", "direction: minimize\nbudget:")],
        "20: direction: unknown key (it belongs under objective or search.pruning)",
    ),
    (
        "key unknown",
        [("  runs: 20", "  runs: 20\n  dollars: 3")],
        (
            "22: budget.dollars: unknown key (known here: runs, experiments, duration, until, gpu_hours, llm_tokens, "
            "cost_usd, ask_above_gpu_hours, ask_above_cost_usd)"
        ),
    ),
    (
        "required key missing",
        [("base_model: scratch\n", "")],
        " base_model: is missing (add it: the model the study starts from)",
    ),
    (
        "required key in a section missing",
        [("  direction: minimize\n", "")],
        "5: objective.direction: is missing (add it: which way is better: minimize or maximize)",
    ),
    (
        "required section empty",
        [("budget:\n  runs: 20\n", "budget:\n")],
        "20: budget: is empty (add it: what the study may use)",
    ),
    (
        "budget without a limit",
        [("  runs: 20", "  runs:")],
        "20: budget: sets no limit (give at least one of runs, experiments, duration, until, gpu_hours, cost_usd)",
    ),
    (
        "section given as text",
        [("budget:\n  runs: 20", "budget: large")],
        "20: budget: 'large' is not a section of `key: value` lines (what the study may use)",
    ),
    (
        "text given as a number",
        [("base_model: scratch", "base_model: 7")],
        "4: base_model: 7 is not text (put it in quotes)",
    ),
    (
        "list where one value belongs",
        [("  lr: 1e-3", "  lr: [1e-3, 1e-2]")],
        "11: parameters.lr: [0.001, 0.01] is not a number, text, true or false",
    ),
    (
        "parameter without a value",
        [("optimizer: adam", "optimizer:")],
        "12: parameters.optimizer: null is not a number, text, true or false",
    ),
    (
        "parameter name with a space",
        [("  optimizer: adam", "  the optimizer: adam")],
        "12: parameters.the optimizer: is not a name (use a letter or _ first, then letters, digits and _ . - /)",
    ),
    (
        "factor not among parameters",
        [("  lr: {levels", "  rl: {levels")],
        "15: space.rl: is not among parameters (give its baseline value there)",
    ),
    ("factor locked", [("[steps]", "[steps, lr]")], "15: space.lr: is locked (take it out of locked or out of space)"),
    (
        "locked name unknown",
        [("[steps]", "[step]")],
        "16: locked[0]: 'step' is not among parameters (add it to parameters or correct the name)",
    ),
    (
        "levels and range",
        [("scale: log", "range: [0, 1]")],
        "15: space.lr: has both levels and range (keep one of them)",
    ),
    (
        "no values",
        [("{levels: [3e-4, 3e-3], scale: log}", "{scale: log}")],
        "15: space.lr: has no values to try (give levels: [...] or range: [lowest, highest])",
    ),
    (
        "levels empty",
        [("[3e-4, 3e-3]", "[]")],
        "15: space.lr.levels: [] is empty (list the values to try besides the baseline's)",
    ),
    ("levels one number", [("[3e-4, 3e-3]", "3e-4")], "15: space.lr.levels: 0.0003 is not a list (write [0.0003])"),
    (
        "log scale at zero",
        [("[3e-4, 3e-3]", "[0, 3e-3]")],
        "15: space.lr: a log scale needs values above 0, not 0 (use scale: linear)",
    ),
    (
        "log range at zero",
        [("levels: [3e-4, 3e-3]", "range: [0, 3e-3]")],
        "15: space.lr.range: a log scale needs a range above 0 (raise it or use scale: linear)",
    ),
    (
        "range reversed",
        [("levels: [3e-4, 3e-3]", "range: [1, 1e-3]")],
        "15: space.lr.range: [1, 0.001] is not [lowest, highest] (write the smaller number first)",
    ),
    (
        "steps out of bounds",
        [("levels: [3e-4, 3e-3]", "range: [1e-4, 1e-2], steps: 10")],
        "15: space.lr.steps: 10 must be at most 9 (how many values of a range to try)",
    ),
    (
        "requires an unknown parameter",
        [("scale: log", "requires: {optimiser: adam}")],
        "15: space.lr.requires.optimiser: 'optimiser' is not among parameters (name a parameter of this study)",
    ),
    (
        "duration unreadable",
        [("runs: 20", "duration: 9 hourz")],
        "21: budget.duration: '9 hourz' is not a duration (write for example 90s, 5m, 1h30m or 9h)",
    ),
    (
        "duration negative",
        [("runs: 20", "duration: -5")],
        "21: budget.duration: -5 must be above 0 (wall-clock time from the first start, e.g. `9h`)",
    ),
    (
        "until unreadable",
        [("runs: 20", "until: 25:00")],
        "21: budget.until: '25:00' is neither HH:MM nor an ISO date-time (for example until: 07:30)",
    ),
    (
        "until in no time zone",
        [("runs: 20", "until: 07:30 Europe/Nowhere")],
        "21: budget.until: names no time zone: Europe/Nowhere (for example 07:30 Europe/Berlin)",
    ),
    (
        "money without a price",
        [("runs: 20", "cost_usd: 5")],
        (
            "21: budget.cost_usd: counts nothing: by the prices every run is free "
            "(set prices.gpu_hour_usd (with backend.gpus), prices.slot_hour_usd or prices.run_usd)"
        ),
    ),
    (
        "tokens alone",
        [("runs: 20", "llm_tokens: 5")],
        "20: budget: sets no limit (give at least one of runs, experiments, duration, until, gpu_hours, cost_usd)",
    ),
    (
        "money for calls alone",
        [("runs: 20", "cost_usd: 5\nprices: {models: {big: {input_million_usd: 3}}}")],
        (
            "21: budget.cost_usd: counts nothing: by the prices every run is free "
            "(set prices.gpu_hour_usd (with backend.gpus), prices.slot_hour_usd or prices.run_usd)"
        ),
    ),
    (
        "GPU-hours without a GPU",
        [("runs: 20", "gpu_hours: 5")],
        "21: budget.gpu_hours: counts nothing: backend.gpus lists no GPU (list the GPU ids there, or set another limit)",
    ),
    ("until a number", [("runs: 20", "until: 730")], "21: budget.until: 730 is not text (put it in quotes)"),
    (
        "runs not whole",
        [("runs: 20", "runs: 2.5")],
        "21: budget.runs: 2.5 is not a whole number (training runs in all: replicates, retries and confirmation included)",
    ),
    (
        "runs zero",
        [("runs: 20", "runs: 0")],
        "21: budget.runs: 0 must be at least 1 (training runs in all: replicates, retries and confirmation included)",
    ),
    (
        "yes for a boolean",
        [("budget:", "search: {combine: yes}\nbudget:")],
        "20: search.combine: 'yes' is not true or false (it is text here; write true)",
    ),
    (
        "number for a boolean",
        [("budget:", "catalog: {match: 1}\nbudget:")],
        "20: catalog.match: 1 is not true or false (write true or false)",
    ),
    (
        "only one option",
        [("budget:", "backend: {kind: slurm}\nbudget:")],
        "20: backend.kind: 'slurm' is not local, the only choice yet (`local`: processes on this machine)",
    ),
    (
        "fewer GPUs than slots",
        [("budget:", "backend: {slots: 2, gpus: [0]}\nbudget:")],
        "20: backend.gpus: 2 slots need at least 2 GPUs; 1 are listed (list more or set slots: 1)",
    ),
    (
        "environment value is a number, and not repeated",
        [("budget:", "backend: {env: {TOKEN: 123456}}\nbudget:")],
        "20: backend.env.TOKEN: its value is not text (put it in quotes)",
    ),
    (
        "guardrail without a bound",
        [("budget:", "guardrails:\n  - metric: memory\nbudget:")],
        "21: guardrails[0]: has no bound (give min, max or both)",
    ),
    (
        "guardrail reversed",
        [("budget:", "guardrails:\n  - {metric: memory, max: 3}\n  - {metric: seconds, min: 2, max: 1}\nbudget:")],
        "22: guardrails[1].min: 2 is above max: no value can pass (swap min and max)",
    ),
    (
        "regex without a group",
        [("budget:", "metrics: {val_bpb: {kind: regex, pattern: bpb}}\nbudget:")],
        "20: metrics.val_bpb.pattern: has 0 groups; one must hold the number (write one group, e.g. 'loss=([0-9.]+)', or call it (?P<value>…))",
    ),
    (
        "regex broken",
        [("budget:", "metrics: {val_bpb: {kind: regex, pattern: '('}}\nbudget:")],
        "20: metrics.val_bpb.pattern: '(' is not a regular expression: missing ), unterminated subpattern at position 0 (Python's re syntax)",
    ),
    (
        "json without a path",
        [("budget:", "metrics: {val_bpb: {kind: json}}\nbudget:")],
        "20: metrics.val_bpb.path: kind json needs a path (for example path: '{output_dir}/metrics.json')",
    ),
    ("command empty", [(COMMAND, '""')], "19: launcher.command: '' is empty (for example {python} train.py --lr {lr})"),
    (
        "command with an open quote",
        [(COMMAND, "python 'train.py")],
        "19: launcher.command: cannot be split into words: No closing quotation (close the quotes)",
    ),
    ("command with a number", [(COMMAND, "[python, 3]")], "19: launcher.command[1]: 3 is not text (put it in quotes)"),
    (
        "command a mapping",
        [(COMMAND, "{python: 3}")],
        "19: launcher.command: {python: …} is not text or a list of texts (the training command, without a shell)",
    ),
    (
        "template without the factor",
        [("launcher:", "launcher:\n  parameters: {via: template}")],
        "15: space.lr: the command has no place for it (write {lr} where its value belongs in launcher.command)",
    ),
    (
        "placeholder of nothing",
        [("{seed}", "{seed} {depth}")],
        "19: launcher.command: {depth} stands for nothing (add it to parameters; a brace itself is written twice)",
    ),
    (
        "placeholder of the lab's and of a parameter",
        [("  steps: 100", "  steps: 100\n  seed: 3")],
        "20: launcher.command: {seed} is both the lab's and a parameter (rename the parameter)",
    ),
    (
        "parameter file of another way",
        [("launcher:", "launcher:\n  parameters: {via: environment}"), ("{seed}", "{seed} {params_file}")],
        "20: launcher.command: {params_file} stands for nothing (add it to parameters; a brace itself is written twice)",
    ),
    (
        "parameter file of another kind",
        [("launcher:", "launcher:\n  parameters: {path: params.toml}")],
        "19: launcher.parameters.path: 'params.toml' is neither .json, .yaml nor .yml (for example nightlab_params.json)",
    ),
    (
        "folder outside the repository",
        [("launcher:", "launcher:\n  cwd: ../other")],
        "19: launcher.cwd: '../other' must lie inside the repository (write it relative to the repository's top folder)",
    ),
    (
        "frozen path absolute",
        [("[prepare.py]", "[/etc/passwd]")],
        "17: frozen[0]: '/etc/passwd' must lie inside the repository (write it relative to the repository's top folder)",
    ),
    (
        "dry run of an unknown parameter",
        [("launcher:", "launcher:\n  dry_run: {step: 1}")],
        "19: launcher.dry_run.step: 'step' is not among parameters (add it to parameters or correct the name)",
    ),
    (
        "aliased key",
        [("launcher:", "launcher:\n  dry_run_timeout: soon")],
        "19: launcher.dry_run_timeout: 'soon' is not a duration (write for example 90s, 5m, 1h30m or 9h)",
    ),
    (
        "aliased key by its other name",
        [("launcher:", "launcher:\n  dry_run_timeout_seconds: soon")],
        "19: launcher.dry_run_timeout_seconds: 'soon' is not a duration (write for example 90s, 5m, 1h30m or 9h)",
    ),
    (
        "key twice",
        [("  runs: 20", "  runs: 20\n  runs: 30")],
        "22: budget.runs: is given twice (it stands in line 21 already; keep one of them)",
    ),
    (
        "merge key",
        [("budget:\n", "budget:\n  <<: {runs: 3}\n")],
        "21: budget.<<: merge keys are not supported (write the keys out)",
    ),
    (
        "tag",
        [("runs: 20", "runs: !!python/int 20")],
        "21: budget.runs: YAML tags are not supported (take out the word that starts with !)",
    ),
    (
        "alias to nothing",
        [("runs: 20", "runs: *default")],
        "21: budget.runs: no &default stands above it (put text that starts with * in quotes)",
    ),
    ("tab", [("  runs: 20", "\truns: 20")], "21: a tab stands in the indentation (indent with spaces)"),
    (
        "colon in text",
        [("base_model: scratch", "base_model: size: 7b")],
        "4: a colon or an indentation too many (put text with a colon in quotes; or the line above lacks its colon)",
    ),
    (
        "quote left open",
        [("base_model: scratch", 'base_model: "scratch')],
        "4: a quotation mark is not closed (close it)",
    ),
    (
        "braces without quotes",
        [(COMMAND, "{python} train.py")],
        "19: text that starts with { or [ is not in quotes (for example command: '{python} train.py')",
    ),
    (
        "list left open",
        [("[prepare.py]", "[prepare.py")],
        "17: a list is not closed (put a comma between its values and ] at its end)",
    ),
    (
        "line out of place",
        [("  runs: 20", "  runs: 20\n experiments: 3")],
        "22: this line does not fit the section above (keys of one section start in one column)",
    ),
    ("control character", [("scratch", "scr\x01atch")], "4: character '\\x01' is not allowed (delete it)"),
    (
        "two documents",
        [("budget:", "---\nbudget:")],
        "20: a second document starts here (keep one study in a file, without `---`)",
    ),
)


def faults_of(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(folder)
    Path("study.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load_study(Path("study.yaml"))
    assert str(raised.value).splitlines() == [str(fault) for fault in raised.value.faults]
    return [str(fault) for fault in raised.value.faults]


@pytest.mark.parametrize(("replacements", "line"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_one_mistake_gives_one_line(
    replacements: list[tuple[str, str]], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert faults_of(changed(*replacements), tmp_path, monkeypatch) == [f"study.yaml:{line}"]


def test_the_sample_has_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(SAMPLE, encoding="utf-8")
    loaded = load_study(file)
    assert (loaded.file, loaded.text, loaded.warnings) == (file, SAMPLE, ())
    assert loaded.study.parameters == {"lr": 0.001, "optimizer": "adam", "steps": 100}
    assert loaded.study.objective.min_effect == 0.001


def test_all_mistakes_come_at_once_in_the_order_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = changed(
        ("night-1", "My Night"),
        ("method: pretrain\n", ""),
        ("minimize", "up"),
        ("[0.5, 8]", "[8, 0.5]"),
        ("  optimizer: adam", "  optimizer: [adam]"),
        ("{levels: [3e-4, 3e-3], scale: log}", "{levels: [1], range: [2, 1], colour: red}\n  depth: {levels: [2]}"),
        ("[steps]", "[steps, 'the lr', size]"),
        ("  runs: 20", "  runs: 20\n  runs: 30\n  duration: soon"),
    )
    places = [fault.split(": ")[:2] for fault in faults_of(text, tmp_path, monkeypatch)]
    assert places == [
        ["study.yaml", "method"],
        ["study.yaml:1", "study"],
        ["study.yaml:6", "objective.direction"],
        ["study.yaml:8", "objective.plausible"],
        ["study.yaml:11", "parameters.optimizer"],
        ["study.yaml:14", "space.lr"],
        ["study.yaml:14", "space.lr.colour"],
        ["study.yaml:14", "space.lr.range"],
        ["study.yaml:15", "space.depth"],
        ["study.yaml:16", "locked[1]"],
        ["study.yaml:16", "locked[2]"],
        ["study.yaml:22", "budget.runs"],
        ["study.yaml:23", "budget.duration"],
    ]


def test_a_mended_mistake_causes_no_further_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = changed(("parameters:\n", "parameters: none\nunused:\n"), ("levels: [3e-4, 3e-3]", "levels: 3"))
    keys = [fault.split(": ")[1] for fault in faults_of(text, tmp_path, monkeypatch)]
    assert keys == ["parameters", "unused", "space.lr.levels"]


def test_a_blank_file_of_keys_names_every_required_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [fault.split(": ")[1] for fault in faults_of("goal: none\n", tmp_path, monkeypatch)]
    required = ["base_model", "budget", "launcher", "method", "objective", "parameters", "scenario", "study"]
    assert missing == required


def test_values_are_cut_to_sixty_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fault,) = faults_of(changed(("minimize", "s" * 500)), tmp_path, monkeypatch)
    assert "s" * 58 in fault
    assert "s" * 59 not in fault


def test_values_of_the_environment_are_never_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = changed(("budget:", "backend: {env: {TOKEN: 271828, OTHER: [hunter2]}}\nbudget:"))
    lines = "\n".join(faults_of(text, tmp_path, monkeypatch))
    assert "TOKEN" in lines
    assert "271828" not in lines
    assert "hunter2" not in lines


def test_strange_characters_stay_on_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = changed(("minimize", '"a\\nb\\e"'))
    (fault,) = faults_of(text, tmp_path, monkeypatch)
    assert fault.isprintable()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "is empty"),
        (b"# only a comment\n", "is empty"),
        (b"- study: x\n", "holds [{study: …}], not `key: value` lines"),
        (b"study", "holds 'study', not `key: value` lines"),
        ("study: caf\xe9\n".encode("latin-1"), "is not UTF-8 text"),
        ("study: x\n".encode("utf-16"), "is not UTF-8 text"),
        (b"\x00\x01", "character '\\x00' is not allowed"),
        (b"a: " + b"[" * 50, "the file is deeper than 20 levels here"),
        (b"x" * 1_000_001, "is larger than 1 MB"),
    ],
)
def test_what_is_no_study_file_gives_one_line(content: bytes, line: str, tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        load_study(file)
    (fault,) = raised.value.faults
    assert (fault.file, fault.message) == (file, line)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_study(tmp_path / "study.yaml")
    with pytest.raises(ConfigError, match="is a folder"):
        load_study(tmp_path)
