"""The section of the study file that says how large model and data are."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nightlab.configs.section import Section

__all__ = ["Sizes"]


class Sizes(Section):
    """How large model and data are. Optional: with them a pretraining study tries first what a scaling law predicts."""

    model_parameters: Annotated[float, Field(gt=0)] | None = None
    """Parameters of the model, embeddings not counted, e.g. `268e6`."""
    training_tokens: Annotated[float, Field(gt=0)] | None = None
    """Tokens a run trains on, e.g. `8e10`."""
    sequence_length: Annotated[int, Field(ge=1)] | None = None
    """Tokens of one sequence, for a batch size that counts sequences."""
