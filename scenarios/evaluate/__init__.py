"""Evaluations: defences beside each other, what each stops and what it costs."""
