"""Progress where there is no terminal: a line now and then, or a bar in a notebook."""

import sys
from types import SimpleNamespace

from scenarios.console import lines_to, progress_bars


def test_lines_come_now_and_then_and_tell_the_time_left():
    lines: list[str] = []
    now = 0.0
    bar = lines_to(lines.append, clock=lambda: now)
    training = bar("training")
    for done in range(101):
        now = 2.0 * done
        training(done, 100)
    assert lines[0] == "fedsim: training: 10 of 100, about 180 s left".replace("180 s", "3 min")
    assert len(lines) == 6
    assert lines[-1].endswith("s left")


def test_short_work_and_unwanted_progress_print_nothing(capsys):
    for shown in (True, False):
        with progress_bars(shown=shown) as bar:
            bar("training")(1, 2)
    assert capsys.readouterr() == ("", "")


def test_work_that_continues_does_not_count_what_was_done_before():
    lines: list[str] = []
    now = 0.0
    advance = lines_to(lines.append, clock=lambda: now)("training")
    advance(50, 100)
    now = 30.0
    advance(60, 100)
    assert lines == ["fedsim: training: 60 of 100, about 2 min left"]


def test_a_notebook_gets_bars_in_its_output(monkeypatch):
    shown = []
    handle = SimpleNamespace(update=lambda picture: shown.append(picture.data))
    display = SimpleNamespace(
        HTML=lambda text: SimpleNamespace(data=text),
        display=lambda picture, display_id: shown.append(picture.data) or handle,
    )
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with progress_bars() as bar:
        advance = bar("<training>")
        advance(0, 4)
        advance(4, 4)
    assert len(shown) == 2
    assert "&lt;training&gt;" in shown[0] and "value=4 max=4" in shown[1] and "4 of 4" in shown[1]
