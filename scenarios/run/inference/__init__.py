"""From recovered updates to people: the attacks of a scenario, run and scored in columns.

An attack is the same object in every column. It gets `aggregate` evidence (the sum of a round), what was
`disaggregated`, or the `oracle`'s true update, and is not told which; only scoring knows the truth.
"""
