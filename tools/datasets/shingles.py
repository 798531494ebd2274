"""Texts that are nearly the same: overlapping pieces of text, compared by MinHash (Broder 1997; datasketch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ALIKE", "MISSING", "NearCopies", "shingles", "similarity"]

ALIKE = 0.8
"""Jaccard similarity from which two texts count as near copies, as in Lee et al. 2021 (2107.06499)."""
MISSING = 'near copies were not looked for: `pip install "nightlab[data]"`'

WIDTH = 5
"""Characters of a piece."""
LONGEST = 4_000
FEWEST = 4
BOILERPLATE = 0.5
"""A piece that stands in more than this share of the texts says nothing of any of them: the fixed instruction."""
PERMUTATIONS = 128
CANDIDATE = 0.7
"""Estimated similarity from which two texts are compared exactly."""
MOST_CANDIDATES = 20

Hashes = npt.NDArray[np.uint64]


def shingles(text: str) -> Hashes:
    """Sorted hashes of the pieces of a text, each once, without regard to case and white space."""
    folded = " ".join(text.split()).casefold()[:LONGEST]
    points = np.frombuffer(folded.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    if points.size < WIDTH:
        return np.unique(points)
    pieces = np.lib.stride_tricks.sliding_window_view(points, WIDTH)
    # Odd multipliers modulo 2^64 and a shift that mixes the high bits down.
    factors = np.array([0x9E3779B97F4A7C15 * (2 * place + 1) % 2**64 for place in range(WIDTH)], dtype=np.uint64)
    sums = (pieces * factors).sum(axis=1, dtype=np.uint64)
    return np.unique(sums ^ (sums >> np.uint64(29)))


def similarity(one: Hashes, other: Hashes) -> float:
    """Jaccard similarity of two sets of pieces, 0 to 1."""
    common = np.intersect1d(one, other, assume_unique=True).size
    union = one.size + other.size - common
    return common / union if union else 1.0


class NearCopies:
    """Finds in texts, given once each, near copies of those before; finds none where datasketch is not installed."""

    def __init__(self, texts: Sequence[str]) -> None:
        """`texts`: all that will be compared; what most of them share is left out of the comparison."""
        library = _datasketch()
        self._common = _boilerplate([shingles(text) for text in texts] if library else [])
        self._index = library.MinHashLSH(threshold=CANDIDATE, num_perm=PERMUTATIONS) if library else None
        # Copies of an empty sketch share its permutations, which take longer to make than to use.
        self._empty = library.MinHash(num_perm=PERMUTATIONS, hashfunc=_as_it_is) if library else None
        self._kept: list[Hashes] = []

    @property
    def is_able(self) -> bool:
        return self._index is not None

    def is_known(self, text: str, *, keep: bool) -> bool:
        """Whether a text like this one was kept before; if none was and `keep`, it is kept now."""
        if self._index is None or self._empty is None:
            return False
        own = np.setdiff1d(shingles(text), self._common, assume_unique=True)
        if own.size < FEWEST:
            return False
        sketch = self._empty.copy()
        sketch.update_batch((own & np.uint64(0xFFFFFFFF)).tolist())
        candidates = sorted(self._index.query(sketch))[:MOST_CANDIDATES]
        known = any(similarity(own, self._kept[place]) >= ALIKE for place in candidates)
        if keep and not known:
            self._index.insert(len(self._kept), sketch)
            self._kept.append(own)
        return known


def _as_it_is(value: int) -> int:
    return value


def _boilerplate(found: Sequence[Hashes]) -> Hashes:
    if len(found) < FEWEST:
        return np.array([], dtype=np.uint64)
    pieces, counts = np.unique(np.concatenate(found), return_counts=True)
    common: Hashes = pieces[counts > BOILERPLATE * len(found)]
    return common


def _datasketch() -> Any:
    try:
        import datasketch
    except ImportError:
        return None
    return datasketch
