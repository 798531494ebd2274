"""Tests of nightlab.tools."""
