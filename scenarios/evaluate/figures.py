"""The figures that an evaluation shows, by dotted name, with their headings."""

ONES = "disaggregation.ones_found"
ONES_GUESS = "disaggregation.baselines.counts_only_ones_found"
ONES_CEILING = "disaggregation.ceiling.ones_found"
SINGLED_OUT = "disaggregation.singled_out_fraction"
SINGLED_OUT_CEILING = "disaggregation.ceiling.singled_out_fraction"
SINGLED_OUT_ORACLE = "disaggregation.baselines.oracle_singled_out_fraction"
COSINE = "disaggregation.update_cosine"
ACCURACY = "training.test_accuracy"
PERPLEXITY, UNIGRAM = "training.test_perplexity", "training.unigram_perplexity"
WORDS = "word_attribution.f1.disaggregated"
WORDS_GUESS, WORDS_SUM = "word_attribution.f1.frequency", "word_attribution.f1.aggregate"
WORDS_ORACLE = "word_attribution.f1.oracle"
COUNT_ERROR = "analytics.count_error"
WINDOW, MISSING = "analytics.mean_window", "analytics.missing_fraction"
MESSAGES = "messages.all"

LEAKAGE = {
    ONES_GUESS: "ones found: guess",
    ONES: "ones found: attack",
    ONES_CEILING: "ones found: ceiling",
    "disaggregation.exact_fraction": "exact columns",
    "disaggregation.ceiling.exact_fraction": "exact: ceiling",
    SINGLED_OUT: "singled out",
    SINGLED_OUT_CEILING: "singled out: ceiling",
    "disaggregation.certified_fraction": "certified",
    COSINE: "update cosine",
    "disaggregation.estimated_update_cosine": "cosine of estimates",
    "disaggregation.baselines.aggregate_update_cosine": "cosine, no attack",
}
UTILITY = {
    ACCURACY: "test accuracy",
    PERPLEXITY: "test perplexity",
    UNIGRAM: "perplexity: unigram",
    COUNT_ERROR: "error of counts",
    WINDOW: "rounds per count",
    MISSING: "rounds without count",
    MESSAGES: "messages per round",
}
SHARES = frozenset({*LEAKAGE, ACCURACY, MISSING})
"""Figures between 0 and 1, except for cosines, which are above 0 unless an attack points the wrong way."""
INFERENCE = {
    "psnr_db.disaggregated": "PSNR, dB",
    "auc.disaggregated": "AUC",
    "f1.frequency": "F1: guess",
    "f1.aggregate": "F1: sum",
    "f1.disaggregated": "F1: attack",
    "f1.oracle": "F1: oracle",
    "precision.disaggregated": "precision",
    "recall.disaggregated": "recall",
    "rouge_l.disaggregated": "ROUGE-L",
}
"""Figures of inference attacks that are shown, by the end of their name."""
OPTIONAL = frozenset({PERPLEXITY, UNIGRAM})
"""Figures that only some tasks have; others are shown as missing."""
