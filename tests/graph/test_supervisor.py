"""The shape of the supervisor: no name that leads nowhere, which LangGraph would not tell."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.graph import END

from nightlab.graph import nodes, supervisor
from nightlab.graph.state import LabState
from nightlab.graph.supervisor import build_supervisor

ROUTES = {"understand": supervisor._after_understand, "learn": supervisor._after_learn}


def targets(route: Callable[..., Any]) -> set[str]:
    """Every name a routing function can return."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(inspect.getsource(route))):
        if isinstance(node, ast.Return) and node.value is not None:
            found = [part for part in ast.walk(node.value) if isinstance(part, ast.Constant | ast.Name)]
            names |= {part.value for part in found if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            names |= {END for part in found if isinstance(part, ast.Name) and part.id == "END"}
    return names


@pytest.mark.parametrize("source", ROUTES)
def test_every_way_leads_to_a_node_and_is_drawn(source: str) -> None:
    graph = build_supervisor().get_graph()
    drawn = {edge.target for edge in graph.edges if edge.source == source}
    # The state's own keys are read in the routes as well.
    returned = targets(ROUTES[source]) - LabState.__annotations__.keys()
    assert returned == drawn
    assert returned <= {*nodes.__all__, END}


def test_every_step_is_a_node_reached_from_the_start_and_leading_on() -> None:
    graph = build_supervisor().get_graph()
    assert set(graph.nodes) == {*nodes.__all__, "__start__", END}
    reached, waiting = {"__start__"}, ["__start__"]
    while waiting:
        source = waiting.pop()
        for edge in graph.edges:
            if edge.source == source and edge.target not in reached:
                reached.add(edge.target)
                waiting.append(edge.target)
    assert reached == set(graph.nodes)
    assert {edge.source for edge in graph.edges} == set(graph.nodes) - {END}


def test_no_node_has_both_a_fixed_and_a_chosen_way() -> None:
    graph = build_supervisor().get_graph()
    for name in nodes.__all__:
        ways = [edge for edge in graph.edges if edge.source == name]
        assert len({edge.conditional for edge in ways}) == 1
        assert ways[0].conditional or len(ways) == 1, "two fixed ways would both be taken"


def test_the_drawing_shows_every_step() -> None:
    drawing = build_supervisor().get_graph().draw_mermaid()
    assert all(name in drawing for name in nodes.__all__)


def test_it_compiles_without_a_saver_for_servers_that_bring_their_own() -> None:
    assert build_supervisor().checkpointer is None
