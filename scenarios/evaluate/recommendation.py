"""Which defence to choose: the answer of an evaluation in words."""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.evaluate.figures import ACCURACY, COUNT_ERROR, MESSAGES, MISSING, SINGLED_OUT_ORACLE, WINDOW
from scenarios.evaluate.outcome import Outcome
from scenarios.evaluate.sentences import costs, gains, percent, surprise
from scenarios.evaluate.verdict import Form, Verdict

Price = tuple[float, ...]
"""What a defence costs, the most important part first; prices compare as tuples do."""


def price(outcome: Outcome) -> Price:
    """Lost utility in whole points, then lost counts, their error, their gaps and windows, then messages.

    Utility is the accuracy, or for text the perplexity as a part of the unigram model's.
    """
    counts, surprised = outcome.mean(COUNT_ERROR), surprise(outcome)
    return (
        round(100 * (-(outcome.mean(ACCURACY) or 0.0) if surprised is None else surprised)),
        float(counts is None),
        counts or 0.0,
        outcome.mean(MISSING) or 0.0,
        outcome.mean(WINDOW) or 0.0,
        outcome.mean(MESSAGES) or 0.0,
    )


def recommendation(outcomes: Sequence[Outcome]) -> str:
    """What to choose: the cheapest defence that stops the attack, or the fact that none does."""
    none, *defended = outcomes
    judged = [(outcome, verdict) for outcome in defended if (verdict := Verdict.of(outcome)) is not None]
    undefended = Verdict.of(none)
    if not judged or undefended is None:
        return "There is nothing to recommend: no defence has figures to judge it by."
    if undefended.form is Form.STOPPED:
        return "Without any defence the ceiling is already near the guess: these runs tell no defences apart."
    safe = sorted((o for o, verdict in judged if _protects(o, verdict)), key=price)
    if safe:
        best, *others = safe
        also = ", ".join(outcome.name for outcome in others)
        rest = f" At a higher price, also: {also}." if others else ""
        return f"Choose {best.name}: {_why(best)}. It has {_paid(best, none)}.{rest}"
    held = sorted((o for o, verdict in judged if verdict.form is Form.HELD), key=price)
    if held:
        return (
            f"No defence here stops every attack. Against ours {' and '.join(o.name for o in held)} held, "
            "but a better attack could do more: do not rely on it."
        )
    return "No defence here stops the attack."


def _protects(outcome: Outcome, verdict: Verdict) -> bool:
    """Whether no attack helps: the evidence is gone, or no client has a column of its own."""
    return verdict.form is Form.STOPPED or _is_grouped(outcome)


def _is_grouped(outcome: Outcome) -> bool:
    return outcome.mean(SINGLED_OUT_ORACLE) == 0


def _why(outcome: Outcome) -> str:
    if _is_grouped(outcome):
        return "no attack can single out a client, though it may tell when a group took part"
    return "it stops the attack, and by the ceiling a better attack would hardly find more"


def in_short(outcome: Outcome, none: Outcome) -> str:
    """A defence in a line: what it does, and its price."""
    verdict = Verdict.of(outcome)
    if verdict is None or not none.figures:
        return f"{outcome.name}: no figures"
    grouped = "; nobody can be singled out, whatever the attack" if _is_grouped(outcome) else ""
    return f"{outcome.name}: {_effect(verdict)}{grouped}; {_paid(outcome, none)}"


def _effect(verdict: Verdict) -> str:
    found, guess = percent(verdict.attack.mean), percent(verdict.guess.mean)
    if verdict.form is Form.STOPPED:
        return "stops it"
    if verdict.form is Form.HELD:
        ceiling = "not computed" if verdict.ceiling is None else f"not low ({percent(verdict.ceiling.mean)})"
        return f"held against our attack, ceiling {ceiling}"
    return f"leaks ({found} of the participations found, guess {guess})"


def _paid(outcome: Outcome, none: Outcome) -> str:
    paid, gained = costs(outcome, none), gains(outcome, none)
    cost = f"a cost: {', '.join(paid)}" if paid else "no measured cost"
    return cost + (f", and a gain: {', '.join(gained)}" if gained else "")
