"""The figures that an evaluation shows, by dotted name, with their headings."""

CHANCE = "disaggregation.baselines.counts_only_exact_fraction"
SINGLED_OUT = "disaggregation.singled_out_fraction"
ADVANTAGE = "disaggregation.advantage"
COSINE = "disaggregation.update_cosine"
ACCURACY = "training.test_accuracy"
COUNT_ERROR = "analytics.count_error"
WINDOW, MISSING = "analytics.mean_window", "analytics.missing_fraction"
MESSAGES = "messages.all"

LEAKAGE = {
    "disaggregation.exact_fraction": "exact columns",
    CHANCE: "guess from counts",
    ADVANTAGE: "advantage",
    SINGLED_OUT: "singled out",
    "disaggregation.certified_fraction": "certified",
    COSINE: "update cosine",
    "disaggregation.baselines.aggregate_update_cosine": "cosine, no attack",
}
UTILITY = {
    ACCURACY: "test accuracy",
    COUNT_ERROR: "error of counts",
    WINDOW: "rounds per count",
    MISSING: "rounds without count",
    MESSAGES: "messages per round",
}
INFERENCE = {"psnr_db.disaggregated": "PSNR, dB", "auc.disaggregated": "AUC"}
"""Figures of inference attacks that are shown, by the end of their name."""
