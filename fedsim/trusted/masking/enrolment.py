"""Enrolment: before the training every device registers a long-term key, and gets everybody's.

The registry is the small public-key infrastructure that Bonawitz et al. (CCS 2017, section 6.2) ask for
against a server that lies. A device makes its key once, from the operating system's randomness, and keeps it
with the registry in its Flower context. It takes a registry once: from then on nobody can be added or
replaced. Here the server hands the registry out, so the server has to be honest at this moment. In practice
a party other than the server vouches for the keys, such as the vendor of the devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid

from fedsim.flower import config_in
from fedsim.trusted.masking.errors import ContradictionError, NotEnrolledError, RegistryError, TruncatedError
from fedsim.trusted.masking.signatures import VERIFYING_KEY_BYTES, SigningKey
from fedsim.trusted.replies import delivered

ENROL, REGISTER = "masking_enrol", "masking_register"
"""The two queries of enrolment; they belong to no round."""

IDENTITY = "masking-identity"
"""Name of the record that carries enrolment, in messages and in a device's context."""

_SIGNING_KEY, _PUBLIC_KEY, _CLIENT, _REGISTRY = "signing-key", "public-key", "client", "registry"


@dataclass(frozen=True)
class Registry:
    """Everybody's public signing key, as one string of bytes; a client's number is the place of its key."""

    packed: bytes

    def __len__(self) -> int:
        return len(self.packed) // VERIFYING_KEY_BYTES

    def public_key(self, client: int) -> bytes:
        """A client's key."""
        if not 0 <= client < len(self):
            raise ContradictionError(f"client {client} has never enrolled")
        return self.packed[client * VERIFYING_KEY_BYTES : (client + 1) * VERIFYING_KEY_BYTES]

    def number_of(self, public_key: bytes) -> int:
        """The number of the client with this key, which has to be there once."""
        numbers = [number for number in range(len(self)) if self.public_key(number) == public_key]
        if len(numbers) != 1:
            raise RegistryError(f"the device's own key stands {len(numbers)} times in the registry")
        return numbers[0]


@dataclass(frozen=True)
class Identity:
    """A device's own number and signing key, and the registry that it was given at enrolment."""

    client: int
    key: SigningKey
    registry: Registry

    @classmethod
    def recall(cls, context: Context) -> Identity:
        """The identity that the device keeps in its context."""
        kept = config_in(context.state, IDENTITY)
        if _REGISTRY not in kept:
            raise NotEnrolledError("the device has no registry of its peers' keys")
        key = SigningKey.parse(_bytes(kept, _SIGNING_KEY))
        return cls(int(kept[_CLIENT]), key, Registry(_bytes(kept, _REGISTRY)))  # type: ignore[arg-type]


def _give_key(message: Message, context: Context) -> Message:
    """The public key; made when it is first asked for, and the same ever after."""
    answer = ConfigRecord({_PUBLIC_KEY: _own_key(context).public})
    return Message(RecordDict({IDENTITY: answer}), reply_to=message)


def _take_registry(message: Message, context: Context) -> Message:
    """Keep the registry; a second one has to be the same."""
    registry = Registry(_bytes(config_in(message.content, IDENTITY), _REGISTRY))
    if len(registry.packed) % VERIFYING_KEY_BYTES:
        raise TruncatedError(f"{len(registry.packed)} bytes are no registry")
    number = registry.number_of(_own_key(context).public)
    kept = config_in(context.state, IDENTITY)
    if kept.get(_REGISTRY, registry.packed) != registry.packed:
        raise RegistryError("the registry differs from the one that was fixed at enrolment")
    kept[_REGISTRY], kept[_CLIENT] = registry.packed, number
    return Message(RecordDict(), reply_to=message)


ENROLMENT_ANSWERS: dict[str, ClientAppCallable] = {ENROL: _give_key, REGISTER: _take_registry}
"""The queries of enrolment, and how devices answer them."""


def enrol(grid: Grid, nodes: Sequence[int]) -> dict[int, int]:
    """Let all nodes register their keys; node → client number, which is its place among `nodes`.

    A run that goes on from a checkpoint does this again, and gets the keys that the devices have kept.
    """
    answers = delivered(grid.send_and_receive(enrolment_questions(nodes)))
    if missing := set(nodes) - set(answers):
        raise RegistryError(f"expected keys of all nodes, got none of {sorted(missing)}")
    clients = {node: number for number, node in enumerate(nodes)}
    delivered(grid.send_and_receive(registration([public_key(answers[node]) for node in nodes], nodes)))
    return clients


def enrolment_questions(nodes: Sequence[int]) -> list[Message]:
    """Ask nodes for their public keys."""
    return [Message(RecordDict(), node, f"query.{ENROL}") for node in nodes]


def public_key(answer: Message) -> bytes:
    """The key in an answer to such a question."""
    return _bytes(config_in(answer.content, IDENTITY), _PUBLIC_KEY)


def registration(keys: Sequence[bytes], nodes: Sequence[int]) -> list[Message]:
    """Give nodes the registry of all keys."""
    content = RecordDict({IDENTITY: ConfigRecord({_REGISTRY: b"".join(keys)})})
    return [Message(content, node, f"query.{REGISTER}") for node in nodes]


def _own_key(context: Context) -> SigningKey:
    if IDENTITY not in context.state:
        key = SigningKey.generate()
        context.state[IDENTITY] = ConfigRecord({_SIGNING_KEY: key.packed})
    kept = config_in(context.state, IDENTITY)
    return SigningKey.parse(_bytes(kept, _SIGNING_KEY))


def _bytes(record: ConfigRecord, key: str) -> bytes:
    value = record.get(key)
    if not isinstance(value, bytes):
        raise TruncatedError(f"a message lacks {key!r}")
    return value
