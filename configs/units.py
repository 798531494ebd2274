"""Readable quantities in a study file: durations such as `9h`, clock times such as `07:30`, sizes such as `2GB`."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Annotated

from pydantic import BeforeValidator, ByteSize, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError
from pytimeparse2 import parse

__all__ = ["Duration", "Flag", "Size", "next_clock_time", "parse_duration", "parse_size"]


Flag = Annotated[bool, Field(strict=True)]
"""true or false; `yes`, `on` and 1 are not taken for them."""


def parse_duration(value: object) -> object:
    """Seconds of `90`, `"90s"`, `"5m"`, `"1h30m"` or `"9h"`; what is not text is left for pydantic to judge."""
    if isinstance(value, str):
        seconds = parse(value)
        if seconds is None:
            raise PydanticCustomError("duration", "not a duration; write for example 90s, 5m, 1h30m or 9h")
        return float(seconds.total_seconds() if isinstance(seconds, timedelta) else seconds)
    return value


_Positive = Annotated[float, Field(gt=0)]
Duration = Annotated[_Positive, BeforeValidator(parse_duration, json_schema_input_type=_Positive | str)]
"""A span of time in seconds, written as a number of seconds or as text such as `5m`."""


_BYTES = TypeAdapter(ByteSize)


def parse_size(value: object) -> object:
    """Bytes of `500000000`, `"500MB"`, `"1.5 GB"` or `"2GiB"`; what is not text is left for pydantic to judge."""
    if not isinstance(value, str):
        return value
    try:
        return int(_BYTES.validate_python(value))
    except ValidationError as error:
        raise PydanticCustomError("size", "not a size; write for example 500MB, 1.5GB or 2GiB") from error


_Whole = Annotated[int, Field(ge=0)]
Size = Annotated[_Whole, BeforeValidator(parse_size, json_schema_input_type=_Whole | str)]
"""A number of bytes, written as such or as text such as `2GB`."""


def next_clock_time(text: str, now: datetime) -> datetime:
    """The next moment (same time zone as `now`) that a wall clock shows `HH:MM`; an ISO date-time stands for itself.

    Raises ValueError for anything else.
    """
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)
    today = now.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0)
    return today if today > now else today + timedelta(days=1)
