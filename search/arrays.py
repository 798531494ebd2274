"""Orthogonal arrays from a library: factors of two and three levels, and what each of their effects is mixed up with.

An array is a tuple of rows; a row holds a level for each factor, 0 is the baseline's, and row 0 is the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, islice, product

import numpy as np
from numpy.typing import NDArray

__all__ = ["MIXED", "TWO_LEVEL", "confounded_pairs", "has_strength_two", "mixed_array", "two_level_array"]

Design = NDArray[np.int64]
Rows = tuple[tuple[int, ...], ...]

TWO_LEVEL = {4: "L4(2^3)", 8: "L8(2^7)", 12: "L12(2^11)", 16: "L16(2^15)"}
"""Runs → name in pydoe; its L64(2^31) is not orthogonal and is not used."""
MIXED = {9: "L9(3^4)", 18: "L18(6^1 3^6)", 27: "L27(2^1 3^12)", 36: "L36(3^23)"}
"""The same with columns of three levels; L36 has eleven of two levels besides, L18 one that a six-level one is made of,
and pydoe's name for L27 says less than there is: thirteen columns of three levels."""
MOST_COMPARED = 100
"""Choices of columns that are compared."""


def has_strength_two(design: Design) -> bool:
    """Whether every pair of columns shows every pair of levels equally often."""
    for one, other in combinations(range(design.shape[1]), 2):
        pairs, counts = np.unique(design[:, [one, other]], axis=0, return_counts=True)
        levels = len(np.unique(design[:, one])) * len(np.unique(design[:, other]))
        if len(pairs) != levels or len(set(counts.tolist())) != 1:
            return False
    return True


@lru_cache(maxsize=64)
def two_level_array(size: int, factors: int) -> Rows:
    """`size` (4, 8, 12 or 16) rows × `factors` columns of 0 and 1, strength 2, first row all 0.

    The columns are those that confound main effects least with two-factor interactions. Raises ValueError when the
    library's array is not orthogonal.
    """
    full = _from_library(TWO_LEVEL[size])
    choices = (full[:, columns] for columns in combinations(range(full.shape[1]), factors))
    return _rows(min(choices, key=_confounding))


@lru_cache(maxsize=64)
def mixed_array(twos: int, threes: int) -> Rows | None:
    """The smallest array with so many columns of two levels and, after them, of three; None where there is none.

    First row all 0. A column of three levels may serve for two, its levels 1 and 2 taken as one: no longer every pair
    of levels equally often, but in proportion, so that main effects do not mix. Raises ValueError when the library's
    array is not orthogonal.
    """
    for name in MIXED.values():
        full = _split(_from_library(name))
        levels = full.max(axis=0) + 1
        low, high = (np.flatnonzero(levels == count).tolist() for count in (2, 3))
        own = min(twos, len(low))
        wide = twos - own + threes
        if len(high) >= wide:
            pairs = product(combinations(low, own), combinations(high, wide))
            choices = (_narrowed(full[:, [*two, *three]], twos) for two, three in islice(pairs, MOST_COMPARED))
            return _rows(min(choices, key=_confounding))
    return None


def _narrowed(design: Design, twos: int) -> Design:
    """The design with the first so many columns brought to two levels."""
    narrow = design.copy()
    narrow[:, :twos] = np.minimum(narrow[:, :twos], 1)
    return narrow


def _from_library(name: str) -> Design:
    # Not at the top of the module: the library takes about a second to import, and most calls never combine.
    import pydoe

    full: Design = np.asarray(pydoe.get_orthogonal_array(name), dtype=np.int64)
    if not has_strength_two(full) or full[0].any():
        raise ValueError(f"pydoe's {name} is not an orthogonal array that starts at the baseline")
    return full


def _split(full: Design) -> Design:
    """The array with a column of six levels as one of two and one of three."""
    columns = [part for column in full.T for part in ([column % 2, column // 2] if column.max() == 5 else [column])]
    return np.array(columns).T


def _rows(design: Design) -> Rows:
    return tuple(tuple(row) for row in design.tolist())


def _contrasts(column: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each level but the baseline's where a row holds it, without the mean: (rows, levels − 1)."""
    held = column[:, None] == np.arange(1, column.max() + 1)[None, :]
    return np.asarray(held - held.mean(axis=0))


def _mixtures(design: Design) -> NDArray[np.float64]:
    """How far each factor's main effect is mixed up with each interaction: squares of what their columns share.

    (factors, factors, factors); 0 where two of the three are one factor.
    """
    contrasts = [_contrasts(column) for column in design.T]
    every = np.concatenate(contrasts, axis=1)
    pairs = np.einsum("ra,rb->rab", every, every).reshape(len(every), -1)
    shared = (every.T @ pairs).reshape((every.shape[1],) * 3) ** 2
    starts = np.cumsum([0, *(one.shape[1] for one in contrasts)][:-1])
    for axis in range(3):
        shared = np.add.reduceat(shared, starts, axis=axis)
    places = np.arange(len(contrasts))
    shared[places, places, :] = shared[places, :, places] = shared[:, places, places] = 0.0
    return np.asarray(shared)


def _confounding(design: Design) -> float:
    return float(_mixtures(design).sum())


def confounded_pairs(rows: Sequence[Sequence[int]], column: int) -> list[tuple[int, int]]:
    """The pairs of other columns whose interaction is correlated with the column's main effect."""
    mixed = _mixtures(np.asarray(rows))[column]
    return [(one, other) for one, other in combinations(range(len(mixed)), 2) if mixed[one, other] > 1e-9]
