"""How large can a federation be, if rows of the sums are zero? Planted words that follow Zipf's law.

python -m benchmarks.words_scale CLIENTS ROUNDS [--rate .01] [--window 100] [--lost 0] [--seed 1] …

Nothing is trained. Every client types `--tokens` words, of which the r-th is drawn with a probability
proportional to 1/r. The server sees which word's row moved in which round, and the counts. A share `--lost`
of the counted updates is in no sum. "Guess" gives everybody the most widespread words, as many as a client
types on average.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from analytics.report import windowed_counts
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.solvers.sparse import columns_from
from attacks.disaggregation.sparse.authors import authorship
from attacks.disaggregation.sparse.count_model import CountModel
from attacks.disaggregation.sparse.traces import Traces

BANDS = ((1, 1), (2, 10), (11, 40), (41, 200), (201, 1 << 30))
CLAIMED = 0.5


def typed_words(clients: int, vocabulary: int, tokens: int, rng: np.random.Generator) -> csr_matrix:
    """(clients, vocabulary) 1 where a client types a word."""
    chance = 1 / np.arange(1, vocabulary + 1)
    words = np.searchsorted(np.cumsum(chance) / chance.sum(), rng.random((clients, tokens)))
    table = csr_matrix(
        (np.ones(words.size, np.float32), (np.repeat(np.arange(clients), tokens), words.ravel())),
        shape=(clients, vocabulary),
    )
    table.data[:] = 1
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clients", type=int)
    parser.add_argument("rounds", type=int)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--window", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--vocabulary", type=int, default=100_000)
    parser.add_argument("--lost", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = np.random.default_rng([options.seed, options.clients, options.rounds])
    counted = rng.random((options.rounds, options.clients)) < options.rate
    P = counted & (rng.random(counted.shape) >= options.lost)
    typed = typed_words(options.clients, options.vocabulary, options.tokens, rng)
    moved = np.asarray((typed.T @ csr_matrix(P.T, dtype=np.float32)).toarray() > 0)
    report = windowed_counts(counted, options.window)
    counts = CountModel(Windows.from_report(report, options.rounds), options.lost, P.sum(axis=1))

    began = time.process_time()
    traces = Traces.of(moved)
    del moved
    found = columns_from(traces, counts)
    columns = np.zeros_like(P)
    has = found.column >= 0
    columns[:, has] = found.columns[found.column[has]].T
    for_columns = time.process_time() - began
    claimed = has & (found.confidence >= 0.5)
    right = (columns == P).all(axis=0)
    sure = found.confidence > 0.95
    print(
        f"{options.clients} clients × {options.rounds} rounds, seed {options.seed}: columns exact "
        f"{right.mean():.4f}, claimed {claimed.sum()} (expected right {found.confidence[claimed].sum():.1f}, "
        f"right {right[claimed].sum()}), above .95 {sure.sum()} ({(sure & ~right).sum()} wrong); "
        f"CPU {for_columns:.1f} s",
        flush=True,
    )
    columns[:, ~claimed] = False
    found_words = authorship(traces, columns, missing=int((~claimed).sum()))
    print_pairs(typed, found_words[traces.pattern_of].T.tocsr())
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"CPU {time.process_time() - began:.1f} s, peak memory {peak_gb:.2f} GB")


def print_pairs(typed: csr_matrix, found: csr_matrix) -> None:
    """Precision and recall of all (client, word) pairs, by the number of authors of the word."""
    found = (found >= CLAIMED).astype(np.float32)
    authors = np.asarray(typed.sum(axis=0)).ravel()
    right, claims = (np.asarray(t.sum(axis=0)).ravel() for t in (found.multiply(typed), found))
    for least, most in (*BANDS, (1, 10), (1, 1 << 30)):
        band: NDArray[np.bool_] = (authors >= least) & (authors <= most)
        pairs = max(authors[band].sum(), 1)
        precision = right[band].sum() / max(claims[band].sum(), 1)
        each = max(1, round(pairs / typed.shape[0]))
        guessed = np.sort(authors[band])[::-1][:each].sum()
        print(
            f"  words with {least} to {most} authors: {band.sum()} words, {pairs:.0f} pairs, precision "
            f"{precision:.4f}, recall {right[band].sum() / pairs:.4f} "
            f"(guess {guessed / (each * typed.shape[0]):.4f}, {guessed / pairs:.4f})"
        )


if __name__ == "__main__":
    main()
