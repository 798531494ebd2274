"""A fixed sample of rows in bounded memory: those whose prompt has the smallest hash, so that all rows of a prompt,
and so all copies of a row, are in it or out of it together."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from hashlib import blake2b

from nightlab.tools.datasets.example import Example

__all__ = ["Sample", "text_key"]

MOST_CHARACTERS = 64_000_000


def text_key(text: str) -> int:
    """A hash of the text without regard to case and white space; the same on every machine."""
    folded = " ".join(text.split()).casefold()
    return int.from_bytes(blake2b(folded.encode("utf-8", "replace"), digest_size=8).digest())


@dataclass
class Sample:
    """At most `size` examples and `MOST_CHARACTERS` characters of all that are added."""

    size: int
    seen: int = 0
    _characters: int = 0
    _heap: list[tuple[int, int, Example]] = field(default_factory=list)

    def add(self, example: Example) -> None:
        self.seen += 1
        key = text_key(example.prompt or example.response)
        # Of equal keys the later rows go first: one prompt repeated without end cannot push all others out.
        heapq.heappush(self._heap, (-key, -self.seen, example))
        self._characters += example.size
        while len(self._heap) > self.size or self._characters > MOST_CHARACTERS:
            self._characters -= heapq.heappop(self._heap)[2].size

    @property
    def is_whole(self) -> bool:
        return len(self._heap) == self.seen

    def examples(self) -> list[Example]:
        """In the order they were added."""
        return [example for _, _, example in sorted(self._heap, key=lambda item: -item[1])]

    def closest(self, most: int) -> list[Example]:
        """At most `most` of them, again all rows of a prompt together, in the order they were added."""
        kept = heapq.nlargest(most, self._heap, key=lambda item: item[:2])
        return [example for _, _, example in sorted(kept, key=lambda item: -item[1])]
