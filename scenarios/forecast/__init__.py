"""Forecasts: after how many rounds clients are exposed."""
