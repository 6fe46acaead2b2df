"""A local page over all runs, sweeps, evaluations and audits of a folder."""
