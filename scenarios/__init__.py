"""The composition root: scenario files, the runner, scoring, reports and the command line.

A command that takes more than one module has a folder (sweep, evaluate, audit, forecast, reproduction) with
the command itself in `cli.py` and what it draws in `page.py`. What a single run is made of, and what several
folders share, stands beside them.
"""
