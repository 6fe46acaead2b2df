"""The findings of an audit in sentences."""

from __future__ import annotations

from scenarios.audit.audit import Audit, Score
from scenarios.audit.readings import Tried


def conclusion(audit: Audit) -> str:
    """What leaked, and how sure the attack is, in two sentences."""
    if audit.verdict == "inconclusive" and not audit.separated:
        return (
            "Inconclusive: the attack separated nobody, and that says nothing about these sums, because the "
            "log contradicts what it was taken for."
        )
    if audit.doubts:
        return (
            f"Inconclusive: the log may not be what it was taken for, so the {audit.separated} of "
            f"{audit.num_clients} clients that the attack separated prove nothing."
        )
    if not audit.separated:
        return (
            "This attack separated no client. That is no proof that these sums and counts are safe: more "
            "rounds or another attack may succeed."
        )
    names = "" if audit.named else " (their names are unknown)"
    return (
        f"The attack recovered the rounds of {audit.separated} of {audit.num_clients} clients{names} and the "
        f"own update of {audit.singled_out}. About {audit.expected_right:.1f} of the {audit.separated} are "
        "right, by the attack's own confidence."
    )


def scored(score: Score) -> str:
    """How many of the claims are true."""
    wrong = f"; {score.false_proofs} proved columns are wrong" if score.false_proofs else ""
    return (
        f"{score.right} of {score.claimed} separated columns are right, {score.expected:.1f} expected{wrong}"
    )


def noise(audit: Audit) -> str:
    """How noisy the sums are."""
    if audit.exact:
        return "rounding only"
    return f"{100 * audit.noise:.3g} % of the energy of the updates"


def remarks(audit: Audit) -> list[str]:
    """Contradictions within the log."""
    sentences = [f"Inconclusive: {doubt.finding} Mend it with {doubt.mend}." for doubt in audit.doubts]
    if audit.rejected is not None:
        sentences.append(
            f"Inconclusive: --clients says {audit.rejected.num_clients}, but sums without noise have rank "
            f"{audit.rank}. The attack tried both. With {audit.num_clients} clients it separates "
            f"{audit.separated}, which is shown here; with {audit.rejected.num_clients} it separates "
            f"{audit.rejected.separated}. Nothing counts as proved until the number is right. Clients that "
            "never take part, or only together, do not add to the rank."
        )
    elif len(audit.tried) > 1 and audit.separated:
        shown, other = audit.tried
        sentences.append(
            f"The spectrum contradicts the input: {_said(shown)}, and {_said(other)}. The attack tried both "
            f"numbers. With {shown.num_clients} clients it separates {shown.separated}, which is shown here; "
            f"with {other.num_clients} it separates {other.separated}. A model that moves gives sums a rank "
            "that says nothing about the number of clients."
        )
    if audit.told_by == "given" and not audit.separated and audit.num_clients >= audit.rounds:
        sentences.append(
            f"Inconclusive: with {audit.num_clients} clients, as --clients says, and {audit.rounds} rounds "
            "this attack separates nobody, whatever the sums are. If the number may be wrong, leave it out."
        )
    if audit.misread:
        sentences.append(
            f"The sums alone reveal {audit.sums_alone} columns, more than the sums with counts and cohort "
            "sizes. Do the counts and the cohort sizes belong to these sums? Rounds are counted from 0, stop "
            "is the round after the last one, and sums are in the order of their rounds."
        )
    if audit.separated and not audit.exact and not audit.layers_known:
        sentences.append(
            "The sums are noisy, and the shapes of the model's tensors are unknown. The attack then takes "
            "related entries for independent ones, and its confidence can be too high. Mend it with --layers "
            "FILE."
        )
    if audit.doubted is not None:
        sentences.append(
            "The counts add up to more than the cohort sizes: updates were lost on the way, or one of the "
            f"two is wrong. So the attack assumed an error of {audit.doubted:.2g} in every count, and it "
            "proved nothing."
        )
    return sentences


def _said(tried: Tried) -> str:
    """A number of clients, and who says it."""
    match tried.told_by:
        case "given":
            return f"--clients says {tried.num_clients}"
        case "counts":
            return f"the counts name {tried.num_clients} clients"
        case "spectrum":
            return f"sums without noise have rank {tried.num_clients}"


def advice(audit: Audit) -> list[str]:
    """What prevents separation whatever the attack."""
    if not audit.separated or audit.doubts:
        return []
    return [
        f"Sums cannot tell clients apart while there are at most as many rounds as clients (here "
        f"{audit.rounds} rounds and {audit.num_clients} clients). Then only counts that leave no choice "
        "reveal a client.",
        "Clients that only ever take part together are separated as a group at best, after any number of "
        "rounds.",
    ]
