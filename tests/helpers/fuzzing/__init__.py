"""Fuzzing of every kind of input: a file is damaged, a command reads it, and its ending is judged.

`kinds.templates` makes valid inputs once. `damages.cases` draws a `Case`: one damage to one file of one kind
of input. `endings.try_case` writes the input into an empty folder, runs the command in a forked process, and
returns its `Ending`.
"""
