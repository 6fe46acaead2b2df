"""Recovery from rows of the sums that are exactly zero, such as the vectors of words that nobody typed.

A row moves if and only if somebody in the cohort moved it. So the rounds in which a row is zero do not depend
on the learning rate, on the model, or on how far it has moved. A row that one client alone moves shows this
client's column; a row that several clients move shows the union of their columns.
"""
