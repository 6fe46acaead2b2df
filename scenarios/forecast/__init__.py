"""Forecasts: after how many rounds are clients exposed?"""
