"""Evaluations: compare defences by what each stops and what it costs."""
