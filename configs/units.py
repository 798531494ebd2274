"""Readable quantities in a study file: durations such as `9h`, clock times such as `07:30`, sizes such as `2GB`."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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
    """The next moment that a wall clock shows `HH:MM`, in the time zone named behind it or else in that of `now`.

    An ISO date-time, with an offset, a zone or neither, stands for itself. Raises KeyError for an unknown time zone,
    ValueError for any other text.
    """
    moment, _, name = text.strip().rpartition(" ")
    if moment[:1].isdigit() and name[:1].isalpha():
        now = now.astimezone(_zone(name))
    else:
        moment = text.strip()
    try:
        clock = time.fromisoformat(moment)
    except ValueError:
        stated = datetime.fromisoformat(moment)
        return stated if stated.tzinfo else stated.replace(tzinfo=now.tzinfo)
    if clock.tzinfo:
        now = now.astimezone(clock.tzinfo)
    today = now.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0, fold=0)
    return today if today.timestamp() > now.timestamp() else today + timedelta(days=1)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        # A folder of zones such as `Europe` is an OSError, a name that climbs out of the data a ValueError.
        raise KeyError(name) from error
