"""Pages are self-contained, and say so to the browser."""

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import vl_convert

import scenarios
from scenarios import vega
from scenarios.pages import picture, render

TEMPLATES = Path(scenarios.__file__).parent / "templates"
PARTS = ("base", "parts", "gallery", "words", "sentences", "view_rows")
PAGES = sorted(f for f in TEMPLATES.glob("*.html.j2") if f.name.partition(".")[0] not in PARTS)
SCRIPT = re.compile(r"<script>(.*?)</script>", re.S)


def digest(script):
    return "sha256-" + base64.b64encode(hashlib.sha256(script).digest()).decode()


def charts(page):
    """The charts of a page, as Vega-Lite gets them."""
    return [json.loads(spec) for spec in re.findall(r"<div class=\"chart\" data-spec='([^']*)'", page)]


@pytest.mark.parametrize("template", PAGES, ids=lambda path: path.name)
def test_every_page_has_the_head_of_the_base(template):
    text = template.read_text()
    assert text.startswith('{% extends "base.html.j2" %}')
    assert not re.search(r"<script|<style|<meta|\| *safe", text)


def test_the_policy_stands_before_anything_that_it_governs():
    head = (TEMPLATES / "base.html.j2").read_text()
    assert head.index("Content-Security-Policy") < head.index("<style") < head.index("<script")


def test_a_report_needs_no_more_than_its_policy_allows(finished_run):
    page = finished_run.report.read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith(
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-"
    )
    assert policy.endswith("; base-uri 'none'; form-action 'none'")
    assert "unsafe-eval" not in policy
    assert policy.count("unsafe-inline") == 1
    (loader,) = SCRIPT.findall(page)
    packed = re.search(r'<template id="vega">(.*?)</template>', page)[1]
    library = gzip.decompress(base64.b64decode(packed))
    assert re.findall(r"'(sha256-[^']*)'", policy) == [digest(loader.encode()), digest(library)]
    assert set(re.findall(r'\ssrc="([^",]*)', page)) <= {"data:image/png;base64"}
    assert not re.search(r"<script [^>]|<link|<iframe|<object|<form|\son\w+=|@import|url\(", page)


def test_charts_are_valid_and_coloured_by_the_style_sheet(finished_run):
    found = charts(finished_run.report.read_text())
    assert found
    known = set(re.findall(r"(--[\w-]+):", (TEMPLATES / "style.css").read_text()))
    for spec in found:
        assert vl_convert.vegalite_to_vega(spec)["marks"]
        assert set(re.findall(r"var\((--[\w-]+)\)", json.dumps(spec))) <= known


def test_names_of_a_user_cannot_leave_a_chart(finished_run):
    from scenarios.charts import chart, layer
    from scenarios.pages import shown

    evil = "'><script>alert(1)</script>\""
    page = shown(chart(layer([{"name": evil}], "bar", y="name")), evil)
    assert "<script" not in page
    (spec,) = charts(page)
    assert spec["layer"][0]["data"]["values"] == [{"name": evil}]


def test_the_library_is_kept_and_made_again_when_damaged(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda: "window.vegaEmbed")
    made = vega._scripts()
    (kept,) = (tmp_path / "fedsim").iterdir()
    assert vega._scripts() == made
    kept.write_bytes(made[1][:-9])
    assert vega._scripts() == made
    assert kept.read_bytes() == made[1]


@pytest.mark.parametrize("width", [320, 390, 600, 601, 1280])
def test_a_gallery_shows_as_many_images_as_it_says_at_every_width(chromium, width):
    tile = {"picture": picture(np.zeros((4, 4, 3), dtype=np.uint8)), "caption": "18.8 dB"}
    rows = [{"name": name, "note": "", "tiles": [tile] * 8} for name in ("sum", "truth")]
    gallery = render("gallery.html.j2", clients=[{"id": 0, "rows": rows, "said": "8 of its 16 images"}])
    page = chromium.new_page(viewport={"width": width, "height": 800})
    page.set_content(f"<style>{(TEMPLATES / 'style.css').read_text()}</style>{gallery}")
    assert page.locator(".gallery img:visible").count() == 2 * 8
    # Nobody has to scroll sideways to see the last one.
    assert page.evaluate("document.documentElement.scrollWidth") == width
