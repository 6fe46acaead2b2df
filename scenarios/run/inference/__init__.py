"""From recovered updates to people: runs the inference attacks of a scenario and scores them in columns.

An attack is the same object in every column. Its evidence is the `aggregate` (the sum of a round), the
`disaggregated` update, or the `oracle`'s true update. It is not told which; only judges know the truth.
"""
