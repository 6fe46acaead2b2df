"""The composition root: scenario files, the runner, scoring, reports and the command line.

A command of several modules has a folder (sweep, evaluate, audit, forecast, reproduction), with the command
itself in `cli.py` and its page in `page.py`. `run/` holds everything about a single run. Modules that several
folders share are beside them.
"""
