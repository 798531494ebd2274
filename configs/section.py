"""The base of every section of the study file."""

from __future__ import annotations

from typing import get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

__all__ = ["Section"]


class Section(BaseModel):
    """Base of every section: unknown keys are faults, values are not changed after loading."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        populate_by_name=True,
        validate_default=True,
        allow_inf_nan=False,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean_for_number(cls, value: object, info: ValidationInfo) -> object:
        # Python counts True as 1; in a study file it is a mistake.
        if isinstance(value, bool) and info.field_name and _is_number(cls.model_fields[info.field_name].annotation):
            raise PydanticCustomError("boolean_for_number", "a boolean is not a number")
        return value


def _is_number(annotation: object) -> bool:
    parts = {annotation, *get_args(annotation)}
    return bool(parts & {int, float}) and bool not in parts
