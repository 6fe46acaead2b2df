"""A sentence per defence: what it stops and what it costs, in words that its figures give."""

from __future__ import annotations

from scenarios.evaluate.figures import (
    ACCURACY,
    CHANCE,
    COUNT_ERROR,
    MESSAGES,
    MISSING,
    SINGLED_OUT,
    WINDOW,
)
from scenarios.evaluate.outcome import Figure, Outcome

NEGLIGIBLE_LEAKAGE = 0.05
"""Fraction of singled-out clients, or change in it, that counts as none."""
NEGLIGIBLE_ACCURACY = 0.01
"""Change in test accuracy that is not mentioned."""


def sentence(outcome: Outcome, none: Outcome) -> str:
    """What a defence stops and what it costs, compared with `none`."""
    if not outcome.figures:
        return f"{outcome.name} failed: {outcome.results[0].reason}"
    if not none.figures:
        return f"{outcome.name}: the undefended runs failed, so there is nothing to compare with"
    return f"{outcome.name} {_stopped(outcome, none)}; {_costs(outcome, none)}."


def _stopped(outcome: Outcome, none: Outcome) -> str:
    before, after = none.figures[SINGLED_OUT], outcome.figures[SINGLED_OUT]
    change = f"{_percent(after.mean)} of the clients are singled out instead of {_percent(before.mean)}"
    little = NEGLIGIBLE_LEAKAGE + 1e-9  # one client of twenty is negligible, whatever the rounding
    if before.mean <= little:
        verdict = f"has nothing to stop: {_percent(before.mean)} of the clients are singled out without it"
    elif after.mean <= little:
        verdict = f"stops the attack: {change}" + _doubt(little - after.mean, after)
    elif after.mean >= before.mean - NEGLIGIBLE_LEAKAGE:
        verdict = f"does not stop the attack: {change}"
        verdict += _doubt(little - (before.mean - after.mean), before, after)
    else:
        verdict = f"weakens the attack: {change}" + _doubt(before.mean - after.mean, before, after)
    chance = outcome.mean(CHANCE) or 0.0
    if chance > NEGLIGIBLE_LEAKAGE:
        verdict += f" (a guess from the counts gets {_percent(chance)} of the columns)"
    return verdict


def _costs(outcome: Outcome, none: Outcome) -> str:
    costs = []
    before, after = none.figures[ACCURACY], outcome.figures[ACCURACY]
    if abs(after.mean - before.mean) > NEGLIGIBLE_ACCURACY:
        points = f"{100 * (after.mean - before.mean):+.1f} points of test accuracy"
        costs.append(points + _doubt(abs(after.mean - before.mean), before, after))
    window, longer = none.mean(WINDOW), outcome.mean(WINDOW)
    if window is not None and longer is not None and longer > 1.05 * window:
        costs.append(f"a count for {longer:.3g} rounds instead of {window:.3g}")
    missing = outcome.mean(MISSING)
    if outcome.mean(COUNT_ERROR) is not None and missing and missing > (none.mean(MISSING) or 0.0) + 1e-3:
        costs.append(f"{_percent(missing)} of the rounds without a count")
    error = outcome.mean(COUNT_ERROR)
    if error is None:
        costs.append("no counts are published")
    elif error > (none.mean(COUNT_ERROR) or 0.0) + 1e-3:
        costs.append(f"an error of {error:.2g} per count")
    messages = (outcome.mean(MESSAGES) or 0.0) - (none.mean(MESSAGES) or 0.0)
    if abs(messages) > 0.05:
        costs.append(f"{messages:+.1f} messages per round")
    return "cost: " + (", ".join(costs) or "none measured")


def _doubt(margin: float, *figures: Figure) -> str:
    """A remark if the intervals of the figures are wider than the `margin`, or if there are none."""
    widths = [figure.half_width for figure in figures if figure.half_width is not None]
    if len(widths) < len(figures):
        return " (uncertain: only one seed)"
    return " (uncertain: wide intervals)" if sum(widths) > margin else ""


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"
