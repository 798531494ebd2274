"""How code games a night, looked for in the difference of two versions of a file; each finding a cause and a sentence.

What a researcher would do looks alike in places, so every rule asks for something *new* of its kind: what the code did
before it may go on doing. What gets past these rules meets declared equal quantities, fresh seeds and the reviewer.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from nightlab.agents.python_code import Module, binds, call_name, literal_texts
from nightlab.configs.code import lies_below
from nightlab.configs.study import Study

__all__ = ["Fault", "gaming_faults", "locked_loops"]

Fault = tuple[str, str]
"""Cause, sentence."""

_EVAL = r"(?:val|valid|validation|test|eval|evaluation|dev|holdout|held_out)"
_DATA = (
    r"(?:data|dataset|set|ds|loader|dataloader|batch|batches|x|y|ids|tokens|split|texts?|examples|rows|points|samples"
    r"|inputs|labels|targets|files?|paths?|df|corpus)"
)
_EVAL_DATA = re.compile(rf"_*(?:{_EVAL}_?{_DATA}|{_DATA}_{_EVAL}|[xy]_?{_EVAL})", re.IGNORECASE)
_EVAL_SIZE = re.compile(
    rf"(?:num_|n_|max_)?{_EVAL}_?(?:iters?|batches|tokens|examples|samples|size|limit|num|n|count|sequences|len|length)"
    rf"|(?:num|n|max)_{_EVAL}(?:_\w+)?",
    re.IGNORECASE,
)
_EVAL_FILE = re.compile(
    rf"(?:.*[/_\-.])?{_EVAL}(?:[/_\-.].*)?\.(?:bin|np[yz]|pt|jsonl?|csv|tsv|parquet|txt|arrow|pkl|h5|tfrecord)"
)
_EVAL_WORD = re.compile(rf"(?:.*\W)?{_EVAL}(?:\W.*)?", re.IGNORECASE)
_MEASURES = re.compile(r"eval|valid|test|measure|score", re.IGNORECASE)
_LOADS = re.compile(r"load|read|data|split|batch", re.IGNORECASE)
_PLAIN = frozenset({"int", "float", "round", "abs", "min", "max", "str", "sum", "len"})
_BUILTINS = frozenset(dir(builtins))
_GROWS = (ast.Mult, ast.Add, ast.Pow, ast.LShift)


def gaming_faults(study: Study, path: str, before: Module, after: Module, told: Mapping[str, set[str]]) -> list[Fault]:
    """Every way in which `after` games what `before` did not; `told`: metric → names whose values are told as it."""
    found = [
        *_told_faults(before, after, told),
        *_data_faults(study, before, after),
        *_size_faults(before, after),
        *_budget_faults(study, before, after),
        *_place_faults(study, before, after),
    ]
    return [(cause, f"{path}: {text}") for cause, text in found]


def _new(of: Callable[[Module], Iterable[str]], before: Module, after: Module) -> list[str]:
    """What `of` finds more often in the new version."""
    return sorted((Counter(of(after)) - Counter(of(before))).keys())


# --- the metric -----------------------------------------------------------------------------------------------------


def _told_faults(before: Module, after: Module, told: Mapping[str, set[str]]) -> Iterator[Fault]:
    texts = literal_texts(after) - literal_texts(before)
    for metric, names in told.items():
        stated = re.compile(rf"(?<!\w){re.escape(metric)}[\"'\s]*[:=]\s*[-+]?\.?\d")
        for text in texts:
            if stated.search(text):
                yield "metric", f"states {metric} as a text: {text[:60]!r}"
        for text in _new(_kept_texts, before, after):
            if text.strip(" :=\n") == metric:
                yield "metric", f"keeps the name {metric} in a variable: what tells the metric must be plain to see"
        for name in sorted(names - _BUILTINS):
            yield from _value_faults(name, metric, before, after)


def _kept_texts(tree: Module) -> Iterator[str]:
    """Texts that are given a name, put together where they stand in pieces."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            text = _folded(node.value)
            if text is not None:
                yield text


def _folded(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _folded(node.left), _folded(node.right)
        return left + right if left is not None and right is not None else None
    return None


def _value_faults(name: str, metric: str, before: Module, after: Module) -> Iterator[Fault]:
    """Whether what is told was given a value that nobody measured."""
    known = {how for of, how in binds(before) if of == name}
    constants = _constants(after)
    bindings = sorted(_bindings(after, name), key=lambda one: one[0].lineno)
    for place, (node, value) in enumerate(bindings):
        text = ast.unparse(node)
        if text in known:
            continue
        is_last = all(_is_constant(later, constants) for _, later in bindings[place + 1 :])
        if (isinstance(node, ast.AugAssign) and _is_constant(value, constants)) or _is_rescaled(name, value, constants):
            yield "metric", f"{text} turns what is told as {metric}"
        elif not isinstance(node, ast.AugAssign) and _is_constant(value, constants) and is_last:
            yield "metric", f"{text} tells {metric} as a constant, not as it was measured"


Binding = tuple[ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr, ast.expr]


def _bindings(tree: Module, name: str) -> Iterator[Binding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            targets = [node.target]
        else:
            continue
        if node.value is not None and any(isinstance(one, ast.Name) and one.id == name for one in targets):
            yield node, node.value


def _constants(tree: Module) -> set[str]:
    """Names that are given a number once and nothing else."""
    times = Counter(name for (name, _), count in binds(tree).items() for _ in range(count))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.UnaryOp):
            found |= {one.id for one in node.targets if isinstance(one, ast.Name) and times[one.id] == 1}
    return found


def _loaded(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def _is_constant(node: ast.expr, constants: set[str]) -> bool:
    if any(isinstance(one, ast.Attribute | ast.Subscript) for one in ast.walk(node)):
        return False
    numbers = [one for one in ast.walk(node) if isinstance(one, ast.Constant) and _is_number(one.value)]
    names = _loaded(node) - _PLAIN
    return names <= constants and bool(numbers or names)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_rescaled(name: str, node: ast.expr, constants: set[str]) -> bool:
    if name not in _loaded(node) or not _loaded(node) - _PLAIN - {name} <= constants:
        return False
    return any(
        isinstance(one, ast.BinOp) or (isinstance(one, ast.Call) and call_name(one) in ("min", "max"))
        for one in ast.walk(node)
    )


# --- what is measured on, and how much of it ------------------------------------------------------------------------


def _data_faults(study: Study, before: Module, after: Module) -> Iterator[Fault]:
    required = frozenset(study.code.required_calls)
    for name in _new(lambda tree: _eval_loads(tree, required), before, after):
        yield "evaluation", f"uses {name}, which is measured on, outside of the evaluation"
    for text in _new(_eval_splits, before, after):
        yield "evaluation", f"{text} reads what is measured on"
    for text in sorted(literal_texts(after) - literal_texts(before)):
        if _EVAL_FILE.fullmatch(text):
            yield "evaluation", f"names {text[:60]!r}, by its name data to measure on"
    modules = _frozen_names(study, before) | _frozen_names(study, after)
    # Sizes, limits: a constant that the code computes with already.
    known = {text for text in _frozen_values(before, modules) if text.isupper()}
    for text in _new(lambda tree: _frozen_values(tree, modules), before, after):
        if text in known:
            continue
        yield "evaluation", f"uses {text}, which belongs to the evaluation, as data"


def _outside_of_evaluation(tree: ast.AST, required: frozenset[str] = frozenset()) -> Iterator[ast.AST]:
    """Every node but those in functions that measure and in the arguments of calls to them."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and _MEASURES.search(child.name):
            continue
        if isinstance(child, ast.Call) and (call_name(child) in required or _MEASURES.search(call_name(child))):
            continue
        yield child
        yield from _outside_of_evaluation(child, required)


def _eval_loads(tree: Module, required: frozenset[str]) -> Iterator[str]:
    for node in _outside_of_evaluation(tree, required):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if _EVAL_DATA.fullmatch(name):
                yield name
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str) and re.fullmatch(_EVAL, key):
                yield ast.unparse(node)


def _eval_splits(tree: Module) -> Iterator[str]:
    for node in _outside_of_evaluation(tree):
        if not isinstance(node, ast.Call) or not _LOADS.search(call_name(node)):
            continue
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if any(isinstance(one, ast.Constant) and _is_eval_word(one.value) for one in given):
            yield ast.unparse(node)


def _is_eval_word(value: object) -> bool:
    return isinstance(value, str) and len(value) < 60 and _EVAL_WORD.fullmatch(value) is not None


def _frozen_names(study: Study, tree: Module) -> set[str]:
    """Names under which a module knows what frozen modules hold, or these themselves."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and _is_frozen(study, node.module or ""):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname or alias.name for alias in node.names if _is_frozen(study, alias.name)}
    return found


def _is_frozen(study: Study, module: str) -> bool:
    place = module.replace(".", "/")
    return bool(place) and any(lies_below(name, study.frozen) for name in (place, f"{place}.py", f"src/{place}.py"))


def _frozen_values(tree: Module, names: set[str]) -> Iterator[str]:
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if id(node) in called or id(node) in inner:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            yield ast.unparse(node)


def _size_faults(before: Module, after: Module) -> Iterator[Fault]:
    was, now = _sizes(before), _sizes(after)
    for name in sorted(was.keys() & now.keys()):
        if was[name] != now[name]:
            yield "evaluation", f"{name} becomes {' or '.join(sorted(now[name]))}: it says on how much is measured"


def _sizes(tree: Module) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        pairs: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.Assign):
            pairs = [(one.id, node.value) for one in node.targets if isinstance(one, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            pairs = [(node.target.id, node.value)]
        elif isinstance(node, ast.keyword) and node.arg:
            pairs = [(node.arg, node.value)]
        for name, value in pairs:
            if value is not None and _EVAL_SIZE.fullmatch(name):
                found.setdefault(name, set()).add(ast.unparse(value))
    return found


# --- budget and place -----------------------------------------------------------------------------------------------


def _budget_faults(study: Study, before: Module, after: Module) -> Iterator[Fault]:
    """Steps and epochs that the study locks are neither multiplied nor replaced."""
    for name in study.locked:
        known = {*locked_loops(before, name), *_grown(before, name)}
        for text in sorted({*locked_loops(after, name), *_grown(after, name)} - known):
            if _grows(text):
                yield "budget", f"loops over {text}, more than the locked {name}"
        sets = sorted(set(_locked_sets(after, name)) - set(_locked_sets(before, name)))
        yield from (("budget", f"{text} replaces the locked {name}") for text in sets if _grows(text, replaced=True))
        new = _new(_fixed_loops, before, after)
        if new and any(locked_loops(before, name)) and not any(locked_loops(after, name)):
            yield "budget", f"loops over {new[0]}, no more over the locked {name}"


def _fixed_loops(tree: Module) -> Iterator[str]:
    """What is looped over where no variable says how often."""
    return (text for text in _loops(tree) if _loaded(ast.parse(text)) <= _BUILTINS)


def _grown(tree: Module, name: str) -> Iterator[str]:
    """What a name is given that is looped over, where it holds the parameter."""
    looped = {one for text in _loops(tree) for one in _loaded(ast.parse(text))}
    for node in ast.walk(tree):
        names = node.targets if isinstance(node, ast.Assign) else ()
        is_looped = any(isinstance(one, ast.Name) and one.id in looped for one in names)
        if isinstance(node, ast.Assign) and is_looped and _mentions(node.value, name):
            yield ast.unparse(node.value)


def _loops(tree: Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.While):
            yield ast.unparse(node.iter if isinstance(node, ast.For) else node.test)


def locked_loops(tree: Module, name: str) -> Iterator[str]:
    """What is looped over, wherever that depends on the parameter `name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.While):
            head = node.iter if isinstance(node, ast.For) else node.test
            if _mentions(head, name):
                yield ast.unparse(head)


def _locked_sets(tree: Module, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_mentions(one, name) for one in targets):
                yield ast.unparse(node)


def _mentions(node: ast.AST, name: str) -> bool:
    """Whether an expression is, or holds, the parameter: `steps`, `args.steps`, `p["steps"]`."""
    return any(
        (isinstance(one, ast.Name) and one.id == name)
        or (isinstance(one, ast.Attribute) and one.attr == name)
        or (isinstance(one, ast.Constant) and one.value == name)
        for one in ast.walk(node)
    )


def _grows(text: str, *, replaced: bool = False) -> bool:
    tree = ast.parse(text)
    value = tree.body[0].value if replaced and isinstance(tree.body[0], ast.Assign | ast.AugAssign) else tree
    if replaced and isinstance(tree.body[0], ast.AugAssign):
        return isinstance(tree.body[0].op, _GROWS)
    growing = any(isinstance(one, ast.BinOp) and isinstance(one.op, _GROWS) for one in ast.walk(value))
    largest = any(isinstance(one, ast.Call) and call_name(one) == "max" for one in ast.walk(value))
    return growing or largest or (replaced and isinstance(value, ast.Constant))


_LEAVES = re.compile(
    r"\.home\(\)|expanduser|gettempdir|\bpardir\b|\.parents\[[1-9]|\.parent\.parent|cwd\(\)\.parent|dirname\(.*getcwd"
)


def _place_faults(study: Study, before: Module, after: Module) -> Iterator[Fault]:
    for text in _new(_leaving, before, after):
        yield "outside", f"{text} leads out of the worktree, where earlier runs' results lie"
    for text in _new(_written, before, after):
        if lies_below(text, study.inputs):
            yield "outside", f"writes to {text}, which all runs share"


def _leaving(tree: Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
            text = ast.unparse(node)
            if len(text) < 200 and _LEAVES.search(text):
                yield text


def _written(tree: Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or call_name(node) != "open" or not node.args:
            continue
        mode = next((k.value for k in node.keywords if k.arg == "mode"), node.args[1] if len(node.args) > 1 else None)
        path = node.args[0]
        if isinstance(mode, ast.Constant) and isinstance(path, ast.Constant) and re.search("[wax+]", str(mode.value)):
            yield str(path.value)
