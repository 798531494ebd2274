"""Readable quantities in a study file: durations such as `9h`, clock times such as `07:30`."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from pytimeparse2 import parse

__all__ = ["Duration", "Flag", "next_clock_time", "parse_duration"]


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
