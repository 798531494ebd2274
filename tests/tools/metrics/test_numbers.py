"""Numbers as programs print them: read exactly, or refused with a clear word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightlab.errors import MetricError
from nightlab.tools.metrics.lines import statements
from nightlab.tools.metrics.numbers import parse_number

# Below the largest double, which rounds up to infinity when printed with few digits.
FINITE = st.floats(-1e308, 1e308)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2.0),
        ("-0.5", -0.5),
        ("+0.5", 0.5),
        (".5", 0.5),
        ("-.5", -0.5),
        ("2.", 2.0),
        ("1e-3", 0.001),
        ("9.5E-01", 0.95),
        ("9.5e-01", 0.95),
        ("1e+16", 1e16),
        ("007", 7.0),
        ("1,000,000", 1e6),
        ("-12,345,678.25", -12345678.25),
        ("1,234.5", 1234.5),
        ("1_000", 1000.0),
        ("1_000_000.5", 1000000.5),
        ("45%", 45.0),
        ("99.5 %", 99.5),
        ("\N{MINUS SIGN}0.5", -0.5),
        ("  2.5\t", 2.5),
        ("5e-324", 5e-324),
        ("-0.0", 0.0),
    ],
)
def test_a_plain_number_is_read(text: str, value: float) -> None:
    assert parse_number(text) == value


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("0,95", "metric-ambiguous"),
        ("1,234", "metric-ambiguous"),
        ("2,345678", "metric-ambiguous"),
        ("1.234,56", "metric-ambiguous"),
        ("1.000.000", "metric-ambiguous"),
        ("0,000,001", "metric-ambiguous"),
        ("1,00,000", "metric-ambiguous"),
        ("1_0", "metric-ambiguous"),
        ("3/10", "metric-ambiguous"),
        ("0:00:09.49", "metric-ambiguous"),
        ("2.3s", "metric-ambiguous"),
        ("1.2M", "metric-ambiguous"),
        ("0x1f", "metric-ambiguous"),
        ("1e", "metric-ambiguous"),
        ("2.3 2.4", "metric-ambiguous"),
        ("[0.5]", "metric-ambiguous"),
        ("\uff11\uff12", "metric-ambiguous"),
        ("nan", "metric-not-finite"),
        ("-NaN", "metric-not-finite"),
        ("inf", "metric-not-finite"),
        ("-Infinity", "metric-not-finite"),
        ("1.#INF", "metric-not-finite"),
        ("1e999", "metric-not-finite"),
        ("None", "metric-not-finite"),
        ("null", "metric-not-finite"),
        ("N/A", "metric-not-finite"),
        ("", "metric-unreadable"),
        ("%", "metric-unreadable"),
        ("low", "metric-unreadable"),
    ],
)
def test_everything_else_is_refused(text: str, cause: str) -> None:
    with pytest.raises(MetricError) as caught:
        parse_number(text)
    assert caught.value.cause == cause
    assert "\n" not in str(caught.value)


def test_the_decimal_comma_is_named_in_clear_words() -> None:
    with pytest.raises(MetricError, match="'0,95' is ambiguous: a decimal comma or a thousands separator"):
        parse_number("0,95")


@given(FINITE)
def test_printed_floats_are_read_back(value: float) -> None:
    assert parse_number(repr(value)) == value
    for form in ("%g", "%.6f", "%e", "%.17g", "%+.3e", "%G", "%#g"):
        assert parse_number(form % value) == float(form % value)


@given(FINITE, st.sampled_from(["loss: {}", "step 3 | loss={} | x: 1", "{{'loss': '{}', 'a': 2}}", "loss = {}."]))
def test_printed_floats_are_read_back_from_lines(value: float, line: str) -> None:
    for printed in (repr(value), f"{value:g}", f"{value:.6f}", f"{value:e}"):
        (statement,) = statements(line.format(printed), "loss")
        assert statement.outcome() == float(printed)


@given(st.integers(10**6, 10**15))
def test_grouped_integers_are_read_back(value: int) -> None:
    assert parse_number(f"{value:,}") == parse_number(f"{value:_}") == value


@given(st.text(max_size=30))
def test_any_text_gives_a_number_or_a_metric_error(text: str) -> None:
    try:
        value = parse_number(text)
    except MetricError as error:
        assert error.cause in {"metric-not-finite", "metric-ambiguous", "metric-unreadable"}
    else:
        assert value == value
