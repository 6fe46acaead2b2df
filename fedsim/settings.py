"""The base of everything that is read from a scenario file."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Frozen, and strict about its keys: a typo in a file is an error, never a default in disguise."""

    model_config = ConfigDict(frozen=True, extra="forbid")
