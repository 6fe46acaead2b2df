"""The message of a run in words that need no glossary."""

from __future__ import annotations

from scenarios.run.result import Result
from scenarios.run.sections import Disaggregation

NEAR = 0.1
"""Share of the participations, beyond a guess, that counts as no more than a guess."""


def message(result: Result) -> str:
    """One or two sentences for somebody who decides: what the server found out, and compared with what."""
    found = result.disaggregation
    clients = sum(found.outcomes.values())
    singled = round(found.singled_out_fraction * clients)
    if singled:
        said = (
            f"From sums and participation counts alone, the server worked out the contribution of "
            f"{_of(singled, clients)} separately."
        )
        return f"{said} {_guess(found)}{_inversion(result)}"
    return _nobody(found, clients)


def _nobody(found: Disaggregation, clients: int) -> str:
    """No client was singled out: whether that is protection depends on the ceiling."""
    guess, best = found.baselines.counts_only_ones_found, found.ceiling
    attack = f"Our attack could isolate the contribution of none of the {clients} clients"
    if found.ones_found is not None and guess is not None and found.ones_found > guess + NEAR:
        return (
            f"{attack}, but it found {found.ones_found:.0%} of who took part when, and a guess finds "
            f"{guess:.0%}: something leaks."
        )
    if best is None or best.ones_found is None or guess is None:
        return f"{attack}. Whether a better attack could do more was not computed: do not rely on it."
    if best.ones_found <= guess + NEAR:
        return (
            f"{attack}, and a better one would hardly do more: at best {best.ones_found:.0%} of who took "
            f"part when can be found, and a guess finds {guess:.0%}."
        )
    return (
        f"{attack}, but the evidence is there: a better attack could find up to {best.ones_found:.0%} of who "
        f"took part when, and a guess finds {guess:.0%}. Do not rely on it."
    )


def _of(singled: int, clients: int) -> str:
    return f"all {clients} clients" if singled == clients else f"{singled} of {clients} clients"


def _guess(found: Disaggregation) -> str:
    guess = found.baselines.counts_only_exact_fraction
    return (
        f"Guessing from the counts would be right for {'none' if guess < 0.005 else f'{guess:.0%}'} of them."
    )


def _inversion(result: Result) -> str:
    """What the first inversion attack that came nearer says of itself."""
    said = filter(None, (score.in_words() for score in result.inversion.values()))
    return f" {sentence}" if (sentence := next(said, "")) else ""
