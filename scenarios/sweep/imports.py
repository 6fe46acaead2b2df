"""Which modules a module needs, read off the sources without importing anything.

Imports count wherever they stand: at the top, inside a function, in any branch. Only `if TYPE_CHECKING:`
does not count, because nothing runs there.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fedsim.core.users_code import OUR_PACKAGES


@dataclass(frozen=True)
class Source:
    """One module: what it imports, and a digest of what it does.

    `imports` are the names that it may import, each as (level, name): an imported name may be a module or
    something inside one, and the level counts the leading dots. The `digest` ignores comments, docstrings and
    layout.
    """

    imports: tuple[tuple[int, str], ...]
    digest: bytes

    @classmethod
    @lru_cache(maxsize=1024)
    def parse(cls, text: bytes) -> Source:
        """Read a module's text."""
        tree = ast.parse(text)
        imports = tuple(dict.fromkeys(_imports(tree)))
        return cls(imports, hashlib.sha256(ast.dump(_without_docstrings(tree)).encode()).digest())


def import_closure(
    modules: Iterable[str], root: Path, packages: Collection[str] = OUR_PACKAGES
) -> Mapping[str, Source]:
    """These modules and all that they need, directly or not, by name in sorted order.

    A module needs the packages around it, too: Python runs their `__init__` first. `root` is the folder that
    holds the `packages`; others are left out.
    """
    found: dict[str, Source] = {}
    waiting = [name for module in modules for name in _with_parents(module, packages)]
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        file = _file(module, root)
        if file is None:
            continue  # a name inside a module, which is found on its own
        found[module] = Source.parse(file.read_bytes())
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        for level, name in found[module].imports:
            waiting.extend(_with_parents(_absolute(name, level, package), packages))
    return dict(sorted(found.items()))


def _imports(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Import(names):
            yield from ((0, alias.name) for alias in names)
        case ast.ImportFrom(module, names, level):
            yield from ((level, ".".join(filter(None, (module, alias.name)))) for alias in names)
        case ast.If(ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), _, otherwise):
            for statement in otherwise:
                yield from _imports(statement)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _imports(child)


def _absolute(name: str, level: int, package: str) -> str:
    """The full name of what a module in `package` imports with `level` leading dots."""
    if not level:
        return name
    parts = package.split(".")
    return ".".join((*parts[: len(parts) - level + 1], name))


def _with_parents(name: str, packages: Collection[str]) -> Iterator[str]:
    """`a.b.c` as `a`, `a.b` and `a.b.c`; nothing if it is in none of the packages."""
    parts = name.split(".")
    if parts[0] in packages:
        yield from (".".join(parts[: n + 1]) for n in range(len(parts)))


def _file(module: str, root: Path) -> Path | None:
    path = root.joinpath(*module.split("."))
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                node.body = [s for s in node.body if not _is_text(s)]
    return tree


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
