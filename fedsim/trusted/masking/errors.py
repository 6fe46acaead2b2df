"""Reasons why a device refuses an order, and why the server refuses shares: one class for each."""

from __future__ import annotations


class ProtocolError(RuntimeError):
    """Somebody asked for something, or sent something, that an honest party never does."""


class NotEnrolledError(ProtocolError):
    """The device has no registry of its peers' long-term keys yet."""


class RegistryError(ProtocolError):
    """The registry lacks the device's own key, or differs from the one that was fixed at enrolment."""


class OutOfTurnError(ProtocolError):
    """A message was replayed, or came before its turn: each step of a round happens once, in order."""


class TruncatedError(ProtocolError):
    """A message lacks a field, or a field has the wrong length."""


class BadSignatureError(ProtocolError):
    """A signature does not belong to the registered key, the round and the content that it comes with."""


class BrokenSealError(ProtocolError):
    """A sealed letter was changed, was meant for somebody else, or belongs to another round or cohort."""


class CohortTooSmallError(ProtocolError):
    """Fewer devices than the device's own settings ask for would hide its update."""


class ContradictionError(ProtocolError):
    """A list of devices contradicts itself, an earlier list, or what the device itself did."""


class WrongSharesError(ProtocolError):
    """Shares combine to a secret other than the one that its owner is committed to."""


class GarbledError(ProtocolError):
    """The masks of a sum did not cancel: devices had different terms, or one of them sent something else."""
