"""Vega-Lite, which draws the charts of all pages in the reader's browser, as it is embedded in a page.

vl-convert has the library on board, so nothing is downloaded. Putting it together takes seconds, so it is
kept in the cache folder of the user.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from fedsim.core.files import written_whole

LOADER = Path(__file__).parent / "templates" / "charts.js"
"""Unpacks the library in the browser and draws every chart of the page."""


@dataclass(frozen=True)
class Library:
    """The library in a form that a page can hold."""

    packed: str
    """Compressed (gzip) and in base64: a third of its size."""
    digests: tuple[str, ...]
    """Of the loader and of the library: a page's policy allows these scripts, and no others."""


@cache
def library() -> Library:
    """The library that is installed."""
    script, packed = _scripts()
    digests = (digest(LOADER.read_bytes()), digest(script))
    return Library(base64.b64encode(packed).decode("ascii"), digests)


def _scripts() -> tuple[bytes, bytes]:
    """The library as a script, and the same compressed."""
    kept = _cache_folder() / f"vega-{version('vl-convert-python')}.js.gz"
    # A file that is damaged, or that cannot be read, is made again.
    with suppress(OSError, EOFError):
        packed = kept.read_bytes()
        return gzip.decompress(packed), packed
    import vl_convert

    script = vl_convert.javascript_bundle().encode()  # type: ignore[call-arg]  # its stub forgets the default
    packed = gzip.compress(script, compresslevel=9, mtime=0)
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(kept) as temporary:
            temporary.write_bytes(packed)
    return script, packed


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedsim"


def digest(script: bytes) -> str:
    """A script as a page's policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script).digest()).decode("ascii")
