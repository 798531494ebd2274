"""Checkpoints stay small and can be gone on from, however long the night."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from nightlab.graph.checkpoints import KEEP, open_checkpoints, prune

TURNS = 500
THREAD = "tiny"
CONFIG: dict[str, Any] = {"configurable": {"thread_id": THREAD}, "recursion_limit": 100_000}


class Turns(TypedDict):
    turns: int
    log: Annotated[list[str], operator.add]


def agent() -> Any:
    """A graph of its own, called from within a node, as the agents are."""
    graph = StateGraph(Turns).add_node("work", lambda state: {"turns": state["turns"]})
    return graph.add_edge(START, "work").add_edge("work", END).compile()


def loop(saver: SqliteSaver, *, turns: int, prune_every: int, ask: bool = False) -> Any:
    """A supervisor in small: a loop of two nodes, one of them calls an agent and prunes."""
    helper = agent()

    def look(state: Turns) -> dict[str, object]:
        helper.invoke({"turns": state["turns"], "log": []})
        return {"turns": state["turns"] + 1}

    def learn(state: Turns) -> dict[str, object]:
        if state["turns"] % prune_every == 0:
            prune(saver, THREAD)
        if ask and state["turns"] >= turns:
            return {"log": [str(interrupt("go on?"))]}
        return {}

    graph = StateGraph(Turns).add_node("look", look).add_node("learn", learn)
    graph.add_edge(START, "look").add_edge("look", "learn")
    graph.add_conditional_edges("learn", lambda state: END if state["turns"] >= turns else "look", [END, "look"])
    return graph.compile(checkpointer=saver)


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))


def count(saver: SqliteSaver, table: str) -> int:
    return int(saver.conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608


def test_five_hundred_turns_take_no_more_room_than_fifty(tmp_path: Path) -> None:
    sizes = []
    for turns in (50, TURNS):
        path = tmp_path / f"{turns}.sqlite"
        with open_checkpoints(path) as saver:
            loop(saver, turns=turns, prune_every=16).invoke({"turns": 0, "log": []}, CONFIG, durability="sync")
            assert count(saver, "checkpoints") < 200
        sizes.append(size(path))
    assert sizes[1] <= 1.2 * sizes[0]
    assert sizes[1] < 1024 * 1024


def test_the_newest_checkpoints_stay_and_their_writes_with_them(tmp_path: Path) -> None:
    with open_checkpoints(tmp_path / "c.sqlite") as saver:
        graph = loop(saver, turns=40, prune_every=1000)
        graph.invoke({"turns": 0, "log": []}, CONFIG, durability="sync")
        newest = [step.config["configurable"]["checkpoint_id"] for step in graph.get_state_history(CONFIG, limit=KEEP)]
        prune(saver, THREAD)
        kept = saver.conn.execute("SELECT checkpoint_id, checkpoint_ns FROM checkpoints ORDER BY 1 DESC").fetchall()
        assert kept == [(one, "") for one in newest]
        orphans = saver.conn.execute(
            "SELECT count(*) FROM writes WHERE checkpoint_id NOT IN (SELECT checkpoint_id FROM checkpoints)"
        )
        assert orphans.fetchone() == (0,)


def test_another_studys_thread_is_left_alone(tmp_path: Path) -> None:
    other: dict[str, Any] = {"configurable": {"thread_id": "other"}}
    with open_checkpoints(tmp_path / "c.sqlite") as saver:
        graph = loop(saver, turns=10, prune_every=1000)
        graph.invoke({"turns": 0, "log": []}, other, durability="sync")
        before = len(list(graph.get_state_history(other)))
        graph.invoke({"turns": 0, "log": []}, CONFIG, durability="sync")
        prune(saver, THREAD)
        assert len(list(graph.get_state_history(other))) == before


def test_an_open_question_survives_pruning_and_a_new_process(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    with open_checkpoints(path) as saver:
        graph = loop(saver, turns=30, prune_every=16, ask=True)
        result = graph.invoke({"turns": 0, "log": ["began"]}, CONFIG, durability="sync", version="v2")
        assert len(result.interrupts) == 1
        prune(saver, THREAD)
        prune(saver, THREAD)
    with open_checkpoints(path) as saver:
        graph = loop(saver, turns=30, prune_every=16, ask=True)
        (pending,) = graph.get_state(CONFIG).interrupts
        assert pending.value == "go on?"
        result = graph.invoke(Command(resume={pending.id: "yes"}), CONFIG, durability="sync", version="v2")
        assert result.value["log"] == ["began", "yes"] and result.value["turns"] == 30
