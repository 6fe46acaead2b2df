"""Planted problems, small federations and copies of data sets that several tests share."""
