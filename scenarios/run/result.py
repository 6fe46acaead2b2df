"""What a run found out: the types of `result.json`.

A result is computed and also read back from a file. It is a pydantic model rather than a dataclass, because
one declaration then gives attribute access, a check of every file that is read, and the JSON schema that
ships with the package (`result.schema.json`).

To add a figure, add a field with a default, raise `SCHEMA_VERSION`, and run `make schema`. Older files are
still read if they have everything that has no default.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, TypeAdapter

from fedsim.core.errors import UserError
from fedsim.core.files import read_json, write_json
from scenarios.run.checking import checked
from scenarios.run.scores import InversionScore, Score
from scenarios.run.sections import Disaggregation, Honest, InferenceCost, Section

SCHEMA_FILE = Path(__file__).with_name("result.schema.json")
SCHEMA_VERSION = 2
"""Version of the keys in `result.json`; raise it whenever they change."""

RESULT = "the result of a run"
"""What `result.json` is called in messages."""


class ResultFile(Section):
    """A result as a file: it knows the version of its keys."""

    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)]

    @classmethod
    def from_json(cls, content: Mapping[str, Any], source: str) -> Self:
        """The result that a file's content makes; a `UserError` that names the `source` if it makes none."""
        version = content.get("schema_version", 0)
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise UserError(
                f"{source}: schema_version is {version}, and this fedsim reads {SCHEMA_VERSION} at most"
            )
        if version == 0:
            content = cls._upgraded(copy.deepcopy(dict(content)))
        return checked(cls, content, source)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The result that a file holds."""
        content = read_json(path, RESULT)
        try:
            return cls.from_json(content, str(path))
        except UserError as error:
            raise UserError(f"{error}; {cls._advice(content, path.parent)}") from error

    @classmethod
    def _advice(cls, content: Mapping[str, Any], folder: Path) -> str:
        """How to replace a file whose content cannot be used."""
        return f"remove {folder} and run the sweep again"

    @classmethod
    def _upgraded(cls, content: dict[str, Any]) -> dict[str, Any]:
        """The content of a file from before there were versions, as version 1 has it."""
        return {**content, "schema_version": 1}


class Identity(Section):
    """Which scenario a result is of."""

    title: str
    seed: int


class Result(Honest, Identity, ResultFile):
    """Every figure of a run.

    Sections beside the named ones are the scores of inference attacks other than inversion, by the attack's
    key, such as `label_inference` or `label_inference_2`.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Score] = Field(init=False)

    disaggregation: Disaggregation
    inversion: Mapping[str, InversionScore] = Field(default={})
    """Scores of inversion attacks, by the attack's key."""
    inference: InferenceCost | None = None

    @classmethod
    def assemble(
        cls,
        identity: Identity,
        honest: Honest,
        disaggregation: Disaggregation,
        scores: Mapping[str, Score],
        inference: InferenceCost | None = None,
    ) -> Result:
        """A result of this version; `scores` are those of inference attacks, by the attack's key."""
        inversions = {key: score for key, score in scores.items() if isinstance(score, InversionScore)}
        others = {key: score for key, score in scores.items() if key not in inversions}
        return cls.model_validate(
            {
                "schema_version": SCHEMA_VERSION,
                **dict(identity),
                **dict(honest),
                "disaggregation": disaggregation,
                "inversion": inversions,
                **others,
                "inference": inference,
            }
        )

    @property
    def scores(self) -> dict[str, Score]:
        """The scores of all inference attacks, by the attack's key."""
        return {**self.inversion, **(self.__pydantic_extra__ or {})}

    @classmethod
    def _advice(cls, content: Mapping[str, Any], folder: Path) -> str:
        """An attack starts from the sections that it does not change."""
        try:
            _honest(content, "")
        except UserError:
            return "run the scenario again"
        return f"run `fedsim attack {folder}` again"

    @classmethod
    def _upgraded(cls, content: dict[str, Any]) -> dict[str, Any]:
        """Scores did not say what kind of attack they are of; their key does."""
        for score in _tables(content.get("inversion")).values():
            score.setdefault("kind", "inversion")
        for key, score in _tables(content).items():
            if key not in cls.model_fields:
                score.setdefault("kind", key.rstrip("0123456789").removesuffix("_"))
        return super()._upgraded(content)


class PlantedResult(ResultFile):
    """Every figure of a planted problem."""

    disaggregation: Disaggregation
    counts: Mapping[str, float]
    """Share of the counts that have each value, before any noise."""


def read_honest(path: Path) -> Honest:
    """The sections of a result file that no attack changes, whatever its other sections hold."""
    return _honest(read_json(path, RESULT), f"{path}: not {RESULT}")


def _honest(content: Mapping[str, Any], source: str) -> Honest:
    own = {name: content[name] for name in Honest.model_fields if name in content}
    return checked(Honest, own, source)


def _tables(content: Any) -> dict[str, dict[str, Any]]:
    """Those entries of a table that are tables themselves."""
    if not isinstance(content, dict):
        return {}
    return {key: value for key, value in content.items() if isinstance(value, dict)}


def result_schema() -> dict[str, Any]:
    """The JSON schema of `result.json`, of a run or of a planted problem."""
    schema = TypeAdapter(Result | PlantedResult).json_schema()
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "result.json of fedsim"}
    return {**about, **schema}


if __name__ == "__main__":
    write_json(SCHEMA_FILE, result_schema())
