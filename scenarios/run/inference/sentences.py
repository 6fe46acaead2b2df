"""The judge of guessed texts: how near they are to what a client wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attacks.inference.attack import Kind
from fedsim.tasks.text.next_word import NO_TARGET
from scenarios.pages import render
from scenarios.run.inference.findings import Findings, each_column, in_columns, mean_of
from scenarios.run.inference.judge import Judge
from scenarios.run.inference.rouge import Piece, bag_f1, matched, rouge

if TYPE_CHECKING:
    from markupsafe import Markup

    from scenarios.run.world import World

SHOWN_CLIENTS, SHOWN_PIECES = 3, 4
FIGURES = ("rouge_1", "rouge_2", "rouge_l", "bag", "exact")


class SentenceJudge(Judge):
    """ROUGE of matched pieces of text, mean over clients."""

    kind: ClassVar[Kind] = "sentences"
    vivid: ClassVar[bool] = True
    meaning: ClassVar[str] = (
        "ROUGE-1 compares the words of a guessed piece of text with those of the client's own, ROUGE-2 pairs "
        "of neighbouring words, ROUGE-L the longest sequence in common: 1 is the text itself. Guessed pieces "
        "are matched with true ones, and what is left over counts 0. Bag: all words with their "
        "multiplicities, in any order. Exact: share of the pieces that are right word for word. Frequency: "
        "the most frequent words of all texts, for everybody."
    )

    def truth(self, world: World, clients: NDArray[np.int64], attack: Any) -> dict[str, NDArray[Any]]:
        """`pieces` (n, most, length) tokens, 0 for nothing; tokens, `frequent` ones first; the `words`."""
        train = world.data.train
        typed = np.where(train.targets != NO_TARGET, train.inputs, 0)
        owned = [world.owned[int(k)] for k in clients]
        pieces = np.zeros((len(owned), max(map(len, owned)), typed.shape[1]), dtype=np.int64)
        for place, mine in zip(pieces, owned, strict=True):
            place[: len(mine)] = typed[mine]
        frequency = np.bincount(typed[typed > 0], minlength=world.data.task.outputs)
        vocabulary = np.array(getattr(world.data.task, "vocabulary", ()), dtype=np.str_)
        return {"pieces": pieces, "frequent": np.argsort(-frequency, kind="stable"), "words": vocabulary}

    def score(self, findings: Findings) -> dict[str, Any]:
        """All figures by column; `frequency` guesses as many pieces as a client has."""
        truth = [_pieces(one) for one in findings.truth["pieces"]]
        columns: dict[str, dict[str, float | None]] = {name: {} for name in FIGURES}
        guessed = {column: (guess, about) for column, guess, about in each_column(findings)}
        usual = findings.truth["frequent"][: findings.truth["pieces"].shape[2]]
        for column, (guess, about) in guessed.items():
            each = [_scored(_pieces(row), truth[k]) for row, k in zip(guess, about, strict=True)]
            for name in FIGURES:
                columns[name][column] = mean_of(np.array([one[name] for one in each]))
        baseline = [_scored([usual] * len(mine), mine) for mine in truth]
        for name in FIGURES[:-1]:
            columns[name]["frequency"] = mean_of(np.array([one[name] for one in baseline]))
        figures = {key: value for name in FIGURES for key, value in in_columns(name, columns[name]).items()}
        return {**figures, "tokens": float(np.mean((findings.truth["pieces"] > 0).sum(axis=(1, 2))))}

    def show(self, findings: Findings) -> Markup:
        """Some clients: their own words beside the guess, and what the sum of a round shows."""
        rows = range(min(SHOWN_CLIENTS, len(findings.about("disaggregated"))))
        return render("sentences.html.j2", clients=[_client(findings, row) for row in rows])


def _pieces(guess: NDArray[Any]) -> list[Piece]:
    """The pieces of a guess (pieces, length) without filling, and without saying which words have a place."""
    whole = np.abs(guess).astype(np.int64)
    return [piece[piece > 0] for piece in whole if piece.any()]


def _scored(guesses: list[Piece], truth: list[Piece]) -> dict[str, float]:
    same = sum(np.array_equal(guesses[guess], truth[piece]) for guess, piece in matched(guesses, truth))
    return {**rouge(guesses, truth), "bag": bag_f1(guesses, truth), "exact": same / len(truth)}


def _client(findings: Findings, row: int) -> dict[str, Any]:
    """One client's pieces of text, with the guess that is matched with each."""
    position = int(findings.about("disaggregated")[row])
    words = findings.truth["words"]
    truth, guesses = _pieces(findings.truth["pieces"][position]), findings.guesses["disaggregated"][row]
    placed = [bool((piece > 0).any()) for piece in guesses if piece.any()]
    mine = _pieces(guesses)
    pairs = {piece: guess for guess, piece in matched(mine, truth)}
    shown = [
        {
            "true": [str(words[token]) for token in truth[piece]],
            "guess": _marked(mine[pairs[piece]], truth[piece], words) if piece in pairs else [],
            "placed": piece in pairs and placed[pairs[piece]],
        }
        for piece in range(min(SHOWN_PIECES, len(truth)))
    ]
    cohort = _pieces(findings.guesses["aggregate"][position])
    return {
        "id": int(findings.clients[position]),
        "pieces": shown,
        "number": len(truth),
        "exact": round(_scored(mine, truth)["exact"] * len(truth)),
        "cohort_tokens": sum(map(len, cohort)),
        "cohort_sequences": int((findings.guesses["aggregate"][position] > 0).any(axis=1).sum()),
    }


def _marked(guess: Piece, truth: Piece, words: NDArray[np.str_]) -> list[dict[str, Any]]:
    """The guessed words; right if the word is in the same place."""
    return [
        {"word": str(words[token]), "right": place < len(truth) and bool(truth[place] == token)}
        for place, token in enumerate(guess)
    ]
