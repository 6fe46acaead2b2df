"""The judge of word attribution: which of a client's words were named, and which wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attacks.inference.attack import Kind
from fedsim.tasks.text.next_word import NO_TARGET
from scenarios.pages import render
from scenarios.run.inference.findings import Findings, each_column, in_columns, mean_of
from scenarios.run.inference.judge import Judge

if TYPE_CHECKING:
    from markupsafe import Markup

    from scenarios.run.world import World

MOST_AUTHORS = 10
"""Words with more authors say little about any of them."""
CLAIMED = 0.5
"""Least probability of a word that counts as attributed."""
BANDS = {"1": (1, 1), "2": (2, 2), "3-5": (3, 5), "6-10": (6, 10)}
SHOWN_CLIENTS, SHOWN_WORDS = 4, 24


def typed_words(world: World) -> NDArray[np.bool_]:
    """(clients, words) whether a client has a word among the inputs of its training examples."""
    typed = np.zeros((len(world.owned), world.data.task.outputs), dtype=np.bool_)
    for client, mine in enumerate(world.owned):
        read = world.data.train.targets[mine] != NO_TARGET
        typed[client, world.data.train.inputs[mine][read]] = True
    return typed


class WordJudge(Judge):
    """Precision and recall over words of few authors, mean over the clients that have a column."""

    kind: ClassVar[Kind] = "word_attribution"
    vivid: ClassVar[bool] = True
    meaning: ClassVar[str] = (
        f"About words that at most {MOST_AUTHORS} clients typed. Precision: of the words that the attack "
        "attributes to a client, the share that the client typed. Recall: of the words that the client "
        "typed, the share that the attack names. Mean over the clients that have a column. Aggregate: every "
        "word of the cohort counts as the client's. Frequency: the most widespread of these words, for "
        "everybody."
    )

    def truth(self, world: World, clients: NDArray[np.int64], attack: Any) -> dict[str, NDArray[Any]]:
        """Each client's words, how many authors each word has among all clients, and the words themselves."""
        typed = typed_words(world)
        vocabulary = np.array(getattr(world.data.task, "vocabulary", ()), dtype=np.str_)
        return {"typed": typed[clients], "authors": typed.sum(axis=0), "words": vocabulary}

    def score(self, findings: Findings) -> dict[str, Any]:
        """Precision and recall by column, and by the number of authors for the recovered updates."""
        typed, authors = findings.truth["typed"], findings.truth["authors"]
        few = (authors > 0) & (authors <= MOST_AUTHORS)
        precision: dict[str, float | None] = {}
        recall: dict[str, float | None] = {}
        f1: dict[str, float | None] = {}
        for column, claims, true in self._claims(findings):
            precision[column], recall[column] = _scored(claims[:, few], true[:, few])
            f1[column] = _f1(claims[:, few], true[:, few], self._attacked(findings, column))
        usual = _widespread(authors, few, round(float(typed[:, few].sum(axis=1).mean())))
        guess = np.broadcast_to(usual, typed.shape)
        precision["frequency"], recall["frequency"] = _scored(guess[:, few], typed[:, few])
        f1["frequency"] = _f1(guess[:, few], typed[:, few], len(typed))
        return {
            "most_authors": MOST_AUTHORS,
            **in_columns("precision", precision),
            **in_columns("recall", recall),
            **in_columns("f1", f1),
            **self._details(findings),
        }

    def show(self, findings: Findings) -> Markup:
        """Some clients, the words that were named, and which of them are right."""
        return render(
            "words.html.j2",
            clients=[self._client(findings, row) for row in self._vivid(findings)],
            most_authors=MOST_AUTHORS,
        )

    @staticmethod
    def _claims(findings: Findings) -> list[tuple[str, NDArray[np.bool_], NDArray[np.bool_]]]:
        """Column, attributed words and true words, of the clients that have a column, if any has."""
        found = []
        for column, guess, about in each_column(findings):
            chosen = findings.resolved[about] if findings.resolved.any() else np.ones(len(about), np.bool_)
            found.append((column, guess[chosen] >= CLAIMED, findings.truth["typed"][about[chosen]]))
        return found

    @staticmethod
    def _attacked(findings: Findings, column: str) -> int:
        """Clients that the F-measure of a column is about: recovered updates speak for everybody."""
        chosen = findings.resolved if findings.resolved.any() else np.ones(len(findings.clients), np.bool_)
        return len(findings.clients) if column == "disaggregated" else int(chosen.sum())

    @staticmethod
    def _details(findings: Findings) -> dict[str, Any]:
        guess, authors = findings.guesses["disaggregated"], findings.truth["authors"]
        true = findings.truth["typed"][findings.about("disaggregated")]
        precision: dict[str, float | None] = {}
        recall: dict[str, float | None] = {}
        for name, (least, most) in BANDS.items():
            band = (authors >= least) & (authors <= most)
            claims = guess[:, band] >= CLAIMED
            right = int((claims & true[:, band]).sum())
            precision[name] = right / int(claims.sum()) if claims.any() else None
            recall[name] = right / int(true[:, band].sum()) if true[:, band].any() else None
        sure = guess == 1
        return {
            "precision_by_authors": precision,
            "recall_by_authors": recall,
            "sure": int(sure.sum()),
            "sure_right": int((sure & true).sum()),
        }

    @staticmethod
    def _vivid(findings: Findings) -> list[int]:
        """Rows of the recovered guesses to show: the clients with the most words that few others typed."""
        authors = findings.truth["authors"]
        named = (findings.guesses["disaggregated"] >= CLAIMED) & (authors > 0) & (authors <= MOST_AUTHORS)
        return [int(row) for row in np.argsort(-named.sum(axis=1), kind="stable")[:SHOWN_CLIENTS]]

    @staticmethod
    def _client(findings: Findings, row: int) -> Mapping[str, Any]:
        """One client's words with few authors, those with the fewest first."""
        position = int(findings.about("disaggregated")[row])
        guess, authors = findings.guesses["disaggregated"][row], findings.truth["authors"]
        typed, words = findings.truth["typed"][position], findings.truth["words"]
        few = np.flatnonzero((authors > 0) & (authors <= MOST_AUTHORS))
        named = few[guess[few] >= CLAIMED]
        order = named[np.lexsort((named, authors[named]))]
        cohort = findings.guesses["aggregate"][position]
        return {
            "id": int(findings.clients[position]),
            "words": [
                {
                    "word": str(words[w]),
                    "right": bool(typed[w]),
                    "sure": bool(guess[w] == 1),
                    "others": int(authors[w]) - int(typed[w]),
                }
                for w in order[:SHOWN_WORDS]
            ],
            "more": max(0, len(order) - SHOWN_WORDS),
            "named": len(named),
            "right": int(typed[named].sum()),
            "missed": int((typed[few] & (guess[few] < CLAIMED)).sum()),
            "cohort": int((cohort[few] >= CLAIMED).sum()),
        }


def _widespread(authors: NDArray[np.int64], few: NDArray[np.bool_], number: int) -> NDArray[np.bool_]:
    """(words,) the words with the most authors among the chosen ones."""
    chosen = np.zeros(len(authors), dtype=np.bool_)
    chosen[np.argsort(np.where(few, -authors, 1), kind="stable")[:number]] = True
    return chosen & few


def _scored(claims: NDArray[np.bool_], true: NDArray[np.bool_]) -> tuple[float | None, float | None]:
    """Precision over the clients with a claim, and recall over those with a word, mean over clients."""
    right, claimed, typed = (claims & true).sum(axis=1), claims.sum(axis=1), true.sum(axis=1)
    precision = right[claimed > 0] / claimed[claimed > 0]
    recall = right[typed > 0] / typed[typed > 0]
    return mean_of(precision), mean_of(recall)


def _f1(claims: NDArray[np.bool_], true: NDArray[np.bool_], clients: int) -> float:
    """F-measure of each client's claims, over this number of clients: those without a row count 0."""
    right, both = (claims & true).sum(axis=1), claims.sum(axis=1) + true.sum(axis=1)
    return float((2 * right / np.maximum(both, 1)).sum() / clients)
