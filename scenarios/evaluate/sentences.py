"""A sentence per defence: what it stops and what it costs, in words that its figures give."""

from __future__ import annotations

from scenarios.evaluate.figures import (
    ACCURACY,
    COUNT_ERROR,
    MESSAGES,
    MISSING,
    SINGLED_OUT,
    SINGLED_OUT_ORACLE,
    WINDOW,
)
from scenarios.evaluate.outcome import Figure, Outcome
from scenarios.evaluate.verdict import COUNTS_TELL, Form, Verdict

NEGLIGIBLE_ACCURACY = 0.01
"""Change in test accuracy that is not mentioned."""


def sentence(outcome: Outcome, none: Outcome) -> str:
    """What a defence stops and what it costs, compared with `none`."""
    if not outcome.figures:
        return f"{outcome.name} failed: {outcome.results[0].reason}"
    if not none.figures:
        return f"{outcome.name}: the undefended runs failed, so there is nothing to compare with"
    verdict, undefended = Verdict.of(outcome), Verdict.of(none)
    if verdict is None or undefended is None:
        return f"{outcome.name}: there is no verdict, because nobody took part or the runs are too old"
    said = f"{_verdict(verdict, undefended)}; {_singled_out(outcome, none)}"
    return f"{outcome.name} {said}; {_cost(outcome, none)}."


def _verdict(found: Verdict, none: Verdict) -> str:
    """The verdict with guess, attack and ceiling, as shares of the participations."""
    guess, attack = percent(found.guess.mean), percent(found.attack.mean)
    ceiling = None if found.ceiling is None else percent(found.ceiling.mean)
    doubt = _doubt(*found.deciding)
    if found.form is Form.STOPPED:
        return (
            f"stopped the attack: at best {ceiling} of the participations can be found "
            f"(our attack {attack}, guess {guess}){doubt}"
        )
    if found.form is Form.HELD:
        rest = "no ceiling was computed" if ceiling is None else f"the evidence gives up to {ceiling}"
        return (
            f"held against our attack, which is not to be relied on: {attack} of the participations are "
            f"found (guess {guess}), but {rest}{doubt}"
        )
    if found.guess.mean >= COUNTS_TELL:
        return f"leaks: the counts alone give {guess} of the participations (our attack {attack}){doubt}"
    beside = f"guess {guess}" if ceiling is None else f"guess {guess}, ceiling {ceiling}"
    return (
        f"leaks: {attack} of the participations are found ({beside}) "
        f"instead of {percent(none.attack.mean)} without it{doubt}"
    )


def _singled_out(outcome: Outcome, none: Outcome) -> str:
    """Who can be singled out. Nobody, whatever the attack, if no client has a column of its own."""
    if outcome.mean(SINGLED_OUT_ORACLE) == 0:
        return "no attack can single out a client, because none has a column of its own"
    before, after = none.mean(SINGLED_OUT) or 0.0, outcome.mean(SINGLED_OUT) or 0.0
    return f"{percent(after)} of the clients are singled out instead of {percent(before)}"


def _cost(outcome: Outcome, none: Outcome) -> str:
    return "cost: " + (", ".join(costs(outcome, none)) or "none measured")


def costs(outcome: Outcome, none: Outcome) -> list[str]:
    """What a defence costs, compared with `none`; nothing that is negligible."""
    found = []
    before, after = none.figures[ACCURACY], outcome.figures[ACCURACY]
    if abs(after.mean - before.mean) > NEGLIGIBLE_ACCURACY:
        points = f"{100 * (after.mean - before.mean):+.1f} points of test accuracy"
        found.append(points + _doubt(abs(after.mean - before.mean), before, after))
    window, longer = none.mean(WINDOW), outcome.mean(WINDOW)
    if window is not None and longer is not None and longer > 1.05 * window:
        found.append(f"a count for {longer:.3g} rounds instead of {window:.3g}")
    missing = outcome.mean(MISSING)
    if outcome.mean(COUNT_ERROR) is not None and missing and missing > (none.mean(MISSING) or 0.0) + 1e-3:
        found.append(f"{percent(missing)} of the rounds without a count")
    error = outcome.mean(COUNT_ERROR)
    if error is None:
        found.append("no counts are published")
    elif error > (none.mean(COUNT_ERROR) or 0.0) + 1e-3:
        found.append(f"an error of {error:.2g} per count")
    messages = (outcome.mean(MESSAGES) or 0.0) - (none.mean(MESSAGES) or 0.0)
    if abs(messages) > 0.05:
        found.append(f"{messages:+.1f} messages per round")
    return found


def _doubt(margin: float, *figures: Figure) -> str:
    """A remark if the intervals of the figures are wider than the `margin`, or if there are none."""
    widths = [figure.half_width for figure in figures if figure.half_width is not None]
    if len(widths) < len(figures):
        return " (uncertain: only one seed)"
    return " (uncertain: wide intervals)" if sum(widths) > margin else ""


def percent(fraction: float) -> str:
    """A share as whole percents."""
    return f"{100 * fraction:.0f} %"
