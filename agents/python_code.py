"""What Python code says, layout and comments aside: what two versions of a file differ in."""

from __future__ import annotations

import ast
import builtins
import copy
import io
import keyword
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator

__all__ = [
    "Module",
    "binds",
    "call_name",
    "calls",
    "imports",
    "literal_texts",
    "parsed",
    "same_but_seeds",
    "same_meaning",
    "tokens_of",
]

Module = ast.Module
_KNOWN = frozenset({*keyword.kwlist, *keyword.softkwlist, *dir(builtins)})
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def parsed(text: str) -> Module:
    """The module of a text; an empty one where it is no Python of this version."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.parse("")


def same_meaning(one: Module, other: Module) -> bool:
    """Whether two modules differ in comments, docstrings and layout at most."""
    return _meaning(one) == _meaning(other)


def same_but_seeds(one: Module, other: Module) -> bool:
    """Whether two modules differ, beyond that, in the constants of seeds at most."""
    return _meaning(_Seedless().visit(copy.deepcopy(one))) == _meaning(_Seedless().visit(copy.deepcopy(other)))


def _meaning(tree: Module) -> str:
    return ast.dump(_Bare().visit(copy.deepcopy(tree)))


class _Bare(ast.NodeTransformer):
    """Takes out what has no effect: docstrings and other bare constants, `pass` beside something else."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                left = [one for one in block if not _is_idle(one)]
                setattr(node, name, left or (block[:1] and [ast.Pass()]))
        return node


def _is_idle(node: ast.AST) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


class _Seedless(ast.NodeTransformer):
    """Puts 0 for everything that is a seed: of `seed = …`, `f(seed=…)`, `x.manual_seed(…)`, `default_rng(…)`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if _is_seed(call_name(node)) or call_name(node) in ("default_rng", "RandomState", "PRNGKey"):
            node.args, node.keywords = [ast.Constant(0)], []
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        self.generic_visit(node)
        if node.arg and (_is_seed(node.arg) or node.arg == "random_state"):
            node.value = ast.Constant(0)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if any(_is_seed(name) for target in node.targets for name in _names(target)):
            node.value = ast.Constant(0)
        return node


def _is_seed(name: str) -> bool:
    return "seed" in name.lower()


def call_name(node: ast.Call) -> str:
    """The last part of what is called: `f` of `f(x)` and of `a.f(x)`; empty for anything else."""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def calls(tree: ast.AST) -> list[tuple[str, str]]:
    """Every call: the last part of what is called, and the whole with its arguments, layout aside."""
    return [(call_name(node), ast.unparse(node)) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def binds(tree: ast.AST) -> Counter[tuple[str, str]]:
    """`(name, how)` for everything that gives a name a value: assignments, definitions, imports, loops."""
    found: Counter[tuple[str, str]] = Counter()
    for node in ast.walk(tree):
        for name in _bound(node):
            found[name, ast.unparse(node)] += 1
    return found


def _bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign):
        return [name for target in node.targets for name in _names(target)]
    if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr | ast.For):
        return _names(node.target)
    if isinstance(node, ast.Global | ast.Nonlocal):
        return list(node.names)
    return (
        [node.optional_vars.id] if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name) else []
    )


def _names(target: ast.AST) -> list[str]:
    """Names and attributes that a target of an assignment stores into."""
    stores = [node for node in ast.walk(target) if isinstance(getattr(node, "ctx", None), ast.Store)]
    found = [node.id for node in stores if isinstance(node, ast.Name)]
    return found + [node.attr for node in stores if isinstance(node, ast.Attribute)]


def imports(tree: ast.AST) -> set[tuple[str, str]]:
    """`(module, name)` of everything that is imported; the name is empty for a module as such."""
    found: set[tuple[str, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name) for alias in node.names}
    return found


def literal_texts(tree: ast.AST) -> Counter[str]:
    """Every text constant that has an effect, so no docstrings."""
    idle = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in idle)
    return Counter(text for text in texts if isinstance(text, str))


def tokens_of(lines: Iterable[str], known: frozenset[str] = frozenset()) -> list[str]:
    """The tokens of some lines of code, without layout; names that are not `known` become `n0`, `n1` … in their order.

    So two changes that call a new thing by different names are the same.
    """
    found: list[str] = []
    renamed: dict[str, str] = {}
    for line in lines:
        for kind, text in _tokens(line):
            if kind == tokenize.NAME and text not in _KNOWN and text not in known:
                text = renamed.setdefault(text, f"n{len(renamed)}")
            found.append(text)
    return found


def _tokens(line: str) -> Iterator[tuple[int, str]]:
    """Of one line, which may be no whole statement."""
    reader = tokenize.generate_tokens(io.StringIO(line.strip() + "\n").readline)
    try:
        for token in reader:
            if token.type not in _LAYOUT:
                yield token.type, token.string
    except (tokenize.TokenError, IndentationError, SyntaxError):
        # It ends inside brackets or a long text: what was read so far counts.
        return
