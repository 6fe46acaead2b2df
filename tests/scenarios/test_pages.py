"""Pages are self-contained, and say so to the browser."""

import re
from pathlib import Path

import pytest

import scenarios

PAGES = sorted((Path(scenarios.__file__).parent / "templates").glob("*.html.j2"))
POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
    "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">"
)


@pytest.mark.parametrize("template", PAGES, ids=lambda path: path.name)
def test_every_page_has_the_policy_before_anything_that_it_governs(template):
    head = template.read_text().partition("<title>")[0]
    assert '{% include "policy.html" %}' in head
    assert "<script" not in template.read_text()


def test_a_report_needs_no_more_than_its_policy_allows(finished_run):
    page = finished_run.report.read_text()
    assert POLICY in page
    assert set(re.findall(r'\ssrc="([^",]*)', page)) == {"data:image/png;base64"}
    assert not re.search(r"<script|<link|<iframe|<object|<form|\son\w+=|@import|url\(", page)
