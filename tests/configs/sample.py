"""One valid study file, and how tests change it."""

from __future__ import annotations

SAMPLE = """\
study: night-1
scenario: bytes
method: pretrain
base_model: scratch
objective:
  metric: val_bpb
  direction: minimize
  min_effect: 1e-3
  plausible: [0.5, 8]
parameters:
  lr: 1e-3
  optimizer: adam
  steps: 100
space:
  lr: {levels: [3e-4, 3e-3], scale: log}
locked: [steps]
frozen: [prepare.py]
launcher:
  command: "{python} train.py --seed {seed}"
budget:
  runs: 20
"""


def changed(*replacements: tuple[str, str]) -> str:
    """The sample with each `(old, new)` put in; every `old` must stand in it."""
    text = SAMPLE
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    return text
