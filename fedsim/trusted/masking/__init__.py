"""Secure aggregation by pairwise masks: the server side receives masked vectors, and learns their sum.

The protocol of Bonawitz et al. (CCS 2017), over Flower messages, on Flower's primitives for key agreement,
secret sharing and encryption. Keys and seeds come from the operating system, as they must; masks cancel
exactly in integer arithmetic, so no sum depends on them and the same scenario still gives the same bytes.
"""

from fedsim.trusted.masking.settings import Masked

__all__ = ["Masked"]
