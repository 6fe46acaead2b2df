"""The base class of all settings in a scenario file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

LARGEST_INTEGER = 2**31 - 1
"""Largest integer accepted for a setting."""
LARGEST_FLOAT = 1e30
"""Largest float accepted for a setting: products of settings have to stay below float32's 3e38."""


class Settings(BaseModel):
    """Frozen, strict about types and keys: a typo in a file is an error, never a default in disguise."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*", mode="after")
    @classmethod
    def _within_reason(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse numbers that would overflow in use; a seed may be any number."""
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER and info.field_name != "seed":
            raise PydanticCustomError("too_large", "expected {most} at most", {"most": LARGEST_INTEGER})
        if isinstance(value, float) and abs(value) > LARGEST_FLOAT:
            raise PydanticCustomError("too_large", "expected {most} at most", {"most": f"{LARGEST_FLOAT:g}"})
        return value

    def further_modules(self) -> set[str]:
        """The modules of the user's own that these settings name, besides the module of their class."""
        return set()

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, content: Any) -> Any:
        """Forbid unknown keys with a message that lists the known ones."""
        if isinstance(content, Mapping):
            for key in content:
                if key not in cls.model_fields:
                    known = ", ".join(cls.model_fields)
                    raise PydanticCustomError(
                        "unknown_key",
                        "unknown key, expected one of {known}",
                        {"key": str(key), "known": known},
                    )
        return content


BY_NAME = BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value)
"""Put last in the annotation of a union of named settings: `"highs"` then means `{ name = "highs" }`."""


def members(union: Any) -> dict[str, Any]:
    """The classes of a union of named settings, by name."""
    return {member.model_fields["name"].default: member for member in get_args(get_args(union)[0])}
