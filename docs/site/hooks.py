"""Pages of the documentation site that are generated: the start page, and the reference.

MkDocs calls these functions; the pages exist only while the site is built.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
SHIM = re.compile(r"<script[^>]*unpkg\.com[^>]*>\s*</script>")
OUTSIDE = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {
        "index.md": _moved(ROOT / "README.md"),
        "contributing.md": _moved(ROOT / "CONTRIBUTING.md"),
        "reference/commands.md": commands(),
        "reference/settings.md": settings(),
        "reference/python.md": python(),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files of the repository that are no pages become plain code: the site does not hold them."""
    if page.file.src_uri.startswith("reference/"):
        return markdown
    folder = ROOT / "docs"

    def kept(match: re.Match[str]) -> str:
        target = (folder / match[1].partition("#")[0]).resolve()
        if target == ROOT / "CONTRIBUTING.md":
            return "](contributing.md)"
        inside = target.is_relative_to(folder) or match[1] in ("index.md", "contributing.md")
        return match[0] if inside else f'](index.md "{target.relative_to(ROOT)}")'

    return OUTSIDE.sub(kept, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Drop the one script that the theme would load from a network, for its search in opened files.

    Pages need nothing of it. The search works where the site is served, as by `mkdocs serve`.
    """
    return SHIM.sub("", output)


def _moved(file: Path) -> str:
    """A document of the root, with links as they are from `docs/`."""
    text = file.read_text(encoding="utf-8")

    def moved(match: re.Match[str]) -> str:
        target = match[1]
        if target.startswith("docs/"):
            return f"]({target.removeprefix('docs/')})"
        if target.partition("#")[0] in ("CONTRIBUTING.md", "README.md"):
            return f"]({'contributing.md' if 'CONTRIB' in target else 'index.md'})"
        return f"](../{target})"

    return OUTSIDE.sub(moved, text)


def commands() -> str:
    """The help of every command."""
    import click
    import typer

    from scenarios.cli import app

    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    parts = ["# Commands", "What `fedsim COMMAND --help` says.", *_help(root, "fedsim")]
    return "\n\n".join(parts) + "\n"


def _help(command: Any, name: str) -> Iterator[str]:
    import click

    context = click.Context(command, info_name=name, max_content_width=100, terminal_width=100)
    if isinstance(command, click.Group):
        for each, sub in command.commands.items():
            yield from _help(sub, f"{name} {each}")
        return
    # Typer draws boxes around its help; here the plain text of Click is wanted.
    lines = [(record.opts[-1], getattr(record, "help", None) or "") for record in command.params]
    said = inspect.cleandoc(command.help or "")
    yield f"## {name}"
    yield f"{said}\n\n`{command.get_usage(context).replace('Usage: ', '', 1).strip()}`"
    if lines:
        rows = [f"| `{opt}` | {_cell(text)} |" for opt, text in lines if opt != "--help"]
        yield "\n".join(["| argument | meaning |", "|---|---|", *rows])


def settings() -> str:
    """Every setting of a scenario, section by section, from the models that read it."""
    from scenarios.run.scenario import Scenario

    parts = [
        "# Settings",
        "Every key of a scenario file, with its default. Generated from the settings models.",
    ]
    seen: set[type[BaseModel]] = set()
    queue: list[tuple[str, type[BaseModel]]] = [("scenario", Scenario)]
    while queue:
        where, model = queue.pop(0)
        if model in seen:
            continue
        seen.add(model)
        named = model.model_fields.get("name")
        title = f"`{where}`: {named.default}" if named is not None and named.default else f"`{where}`"
        parts += [f"## {title}", inspect.cleandoc(model.__doc__ or ""), _fields(model)]
        for key, found in model.model_fields.items():
            below = key if where == "scenario" else f"{where}.{key}"
            queue += [(below, each) for each in _models(found.annotation)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _fields(model: type[BaseModel]) -> str:
    rows = [
        " | ".join(
            (
                f"| `{key}`",
                _cell(_type(found.annotation)),
                _default(found),
                _cell(found.description or "") + " |",
            )
        )
        for key, found in model.model_fields.items()
        if key != "name"
    ]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows]) if rows else ""


def _default(found: Any) -> str:
    if found.is_required():
        return "required"
    value = found.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return f"`{getattr(value, 'name', None) or type(value).__name__}`"
    return f"`{value!r}`"


def _type(kind: Any) -> str:
    if isinstance(kind, type) and not get_args(kind):
        return "a section" if issubclass(kind, BaseModel) else kind.__name__
    models = list(_models(kind))
    if models:
        names = [m.model_fields["name"].default if "name" in m.model_fields else m.__name__ for m in models]
        return "one of " + ", ".join(map(str, names)) if len(names) > 1 else "a section"
    return str(kind).replace("typing.", "").replace("NoneType", "None")


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    """The settings models in a type, such as the members of a union."""
    if get_origin(kind) is Annotated:
        yield from _models(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType, tuple, list):
        for each in get_args(kind):
            yield from _models(each)
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def python() -> str:
    """The names that programs may rely on, each with its docstring."""
    import fedsim

    parts = ["# Python", "Programs may rely on these names; everything else is private."]
    parts += [f"::: {fedsim._HOMES[name]}.{name}" for name in fedsim.__all__]
    return "\n\n".join(parts) + "\n"
