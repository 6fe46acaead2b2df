"""Tables for people: a spreadsheet must not run what stands in a cell."""

import csv

from scenarios.tables import write_csv


def test_texts_that_look_like_formulas_are_neutralised_and_numbers_are_not(tmp_path):
    texts = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "plain", "a=b", ""]
    numbers = [-1.5, 3, "-0.25", "+1e-3", "-inf"]
    write_csv([{"cell": cell} for cell in (*texts, *numbers)], tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(newline="") as file:
        cells = [row["cell"] for row in csv.DictReader(file)]
    assert cells[: len(texts)] == [
        *("'=1+1", "'+cmd|' /C calc'!A0", "'-2+3", "'@SUM(A1)", "'\tx"),
        *("plain", "a=b", ""),
    ]
    assert cells[len(texts) :] == list(map(str, numbers))
