"""Tests of nightlab.tools.backends."""

import pytest

pytest.register_assert_rewrite("tests.tools.backends.contract")
