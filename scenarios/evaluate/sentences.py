"""A sentence per defence: what it stops and what it costs, in words that its figures give."""

from __future__ import annotations

from collections.abc import Iterator

from scenarios.evaluate.figures import (
    ACCURACY,
    COUNT_ERROR,
    MESSAGES,
    MISSING,
    PERPLEXITY,
    SINGLED_OUT,
    SINGLED_OUT_ORACLE,
    UNIGRAM,
    WINDOW,
    WORDS,
    WORDS_GUESS,
    WORDS_ORACLE,
    WORDS_SUM,
)
from scenarios.evaluate.outcome import Figure, Outcome
from scenarios.evaluate.verdict import COUNTS_TELL, Form, Verdict

NEGLIGIBLE_ACCURACY = 0.01
"""Change in test accuracy that is not mentioned."""
NEGLIGIBLE_PERPLEXITY = 0.02
"""Relative change in perplexity that is not mentioned."""


def sentence(outcome: Outcome, none: Outcome) -> str:
    """What a defence stops and what it costs, compared with `none`."""
    if not outcome.figures:
        return f"{outcome.name} failed: {outcome.results[0].reason}"
    if not none.figures:
        return f"{outcome.name}: the undefended runs failed, so there is nothing to compare with"
    verdict, undefended = Verdict.of(outcome), Verdict.of(none)
    if verdict is None or undefended is None:
        return f"{outcome.name}: there is no verdict, because nobody took part or the runs are too old"
    said = f"{_verdict(verdict, undefended)}; {_singled_out(outcome, none)}{_words(outcome, none)}"
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


def _words(outcome: Outcome, none: Outcome) -> str:
    """Which rare words are attributed to their authors; empty if no attack on words was run."""
    found, before = outcome.mean(WORDS), none.mean(WORDS)
    if found is None or before is None:
        return ""
    beside = (("guess", WORDS_GUESS), ("sum", WORDS_SUM), ("true update", WORDS_ORACLE))
    said = ", ".join(f"{name} {outcome.mean(key) or 0.0:.2f}" for name, key in beside)
    return f"; rare words find their authors with F1 {found:.2f} ({said}) instead of {before:.2f}"


def _cost(outcome: Outcome, none: Outcome) -> str:
    gained = gains(outcome, none)
    cost = "cost: " + (", ".join(costs(outcome, none)) or "none measured")
    return cost + (f"; gain: {', '.join(gained)}" if gained else "")


def costs(outcome: Outcome, none: Outcome) -> list[str]:
    """What a defence costs, compared with `none`; nothing that is negligible."""
    return [said for said, worse in _changes(outcome, none) if worse]


def gains(outcome: Outcome, none: Outcome) -> list[str]:
    """What is better than with `none`, for the same reasons."""
    return [said for said, worse in _changes(outcome, none) if not worse]


def _changes(outcome: Outcome, none: Outcome) -> Iterator[tuple[str, bool]]:
    """What differs from `none`, and whether it is worse."""
    before, after = none.figures[ACCURACY], outcome.figures[ACCURACY]
    if abs(after.mean - before.mean) > NEGLIGIBLE_ACCURACY:
        points = f"{100 * (after.mean - before.mean):+.1f} points of test accuracy"
        yield points + _doubt(abs(after.mean - before.mean), before, after), after.mean < before.mean
    yield from _perplexity(outcome, none)
    window, longer = none.mean(WINDOW), outcome.mean(WINDOW)
    if window is not None and longer is not None and longer > 1.05 * window:
        yield f"a count for {longer:.3g} rounds instead of {window:.3g}", True
    missing = outcome.mean(MISSING)
    if outcome.mean(COUNT_ERROR) is not None and missing and missing > (none.mean(MISSING) or 0.0) + 1e-3:
        yield f"{percent(missing)} of the rounds without a count", True
    error = outcome.mean(COUNT_ERROR)
    if error is None:
        yield "no counts are published", True
    elif error > (none.mean(COUNT_ERROR) or 0.0) + 1e-3:
        yield f"an error of {error:.2g} per count", True
    messages = (outcome.mean(MESSAGES) or 0.0) - (none.mean(MESSAGES) or 0.0)
    if abs(messages) > 0.05:
        yield f"{messages:+.1f} messages per round", messages > 0


def _perplexity(outcome: Outcome, none: Outcome) -> Iterator[tuple[str, bool]]:
    """Perplexity of text, of which less is better. Another vocabulary has another scale: its unigram model's.

    So the parts of the unigram perplexity that remain are compared.
    """
    before, after = surprise(none), surprise(outcome)
    if before is None or after is None or abs(after / before - 1) <= NEGLIGIBLE_PERPLEXITY:
        return
    figures = (none.figures[PERPLEXITY], outcome.figures[PERPLEXITY])
    beside = (none.figures[UNIGRAM], outcome.figures[UNIGRAM])
    old, new = (f"{p.mean:.3g} (unigram {u.mean:.3g})" for p, u in zip(figures, beside, strict=True))
    doubt = _doubt(abs(after - before) * beside[1].mean, *figures)
    yield f"test perplexity {new} instead of {old}{doubt}", after > before


def surprise(outcome: Outcome) -> float | None:
    """Perplexity as a part of the unigram model's, for text."""
    perplexity, unigram = outcome.mean(PERPLEXITY), outcome.mean(UNIGRAM)
    return None if perplexity is None or not unigram else perplexity / unigram


def _doubt(margin: float, *figures: Figure) -> str:
    """A remark if the intervals of the figures are wider than the `margin`, or if there are none."""
    widths = [figure.half_width for figure in figures if figure.half_width is not None]
    if len(widths) < len(figures):
        return " (uncertain: only one seed)"
    return " (uncertain: wide intervals)" if sum(widths) > margin else ""


def percent(fraction: float) -> str:
    """A share as whole percents."""
    return f"{100 * fraction:.0f} %"
