"""The composition root: scenario files, the runner, scoring, reports and the command line."""
