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
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedsim.flower import client_number, config_in
from fedsim.trusted.masking.errors import ContradictionError, NotEnrolledError, RegistryError, TruncatedError
from fedsim.trusted.masking.signatures import VERIFYING_KEY_BYTES, SigningKey
from fedsim.trusted.replies import delivered

ENROL, REGISTER = "masking_enrol", "masking_register"
"""The two queries of enrolment; they belong to no round."""

_RECORD = "masking-identity"
"""Name of the record that carries enrolment, in messages and in a device's context."""

_SIGNING_KEY, _PUBLIC_KEY, _CLIENT, _REGISTRY = "signing-key", "public-key", "client", "registry"


@dataclass(frozen=True)
class Registry:
    """Everybody's public signing key, by client number, as one string of bytes."""

    packed: bytes

    def __len__(self) -> int:
        return len(self.packed) // VERIFYING_KEY_BYTES

    def public_key(self, client: int) -> bytes:
        """A client's key."""
        if not 0 <= client < len(self):
            raise ContradictionError(f"client {client} has never enrolled")
        return self.packed[client * VERIFYING_KEY_BYTES : (client + 1) * VERIFYING_KEY_BYTES]


@dataclass(frozen=True)
class Identity:
    """A device's own number and signing key, and the registry that it was given at enrolment."""

    client: int
    key: SigningKey
    registry: Registry

    @classmethod
    def recall(cls, context: Context) -> Identity:
        """The identity that the device keeps in its context."""
        kept = config_in(context.state, _RECORD)
        if _REGISTRY not in kept:
            raise NotEnrolledError(f"client {client_number(context)} has no registry of its peers' keys")
        key = SigningKey.parse(_bytes(kept, _SIGNING_KEY))
        return cls(client_number(context), key, Registry(_bytes(kept, _REGISTRY)))


def answer_enrolment(app: ClientApp) -> None:
    """Teach an app to enrol."""

    @app.query(ENROL)
    def enrol(message: Message, context: Context) -> Message:
        """The public key; made when it is first asked for, and the same ever after."""
        public_key = _own_key(context).public
        answer = ConfigRecord({_CLIENT: client_number(context), _PUBLIC_KEY: public_key})
        return Message(RecordDict({_RECORD: answer}), reply_to=message)

    @app.query(REGISTER)
    def register(message: Message, context: Context) -> Message:
        """Keep the registry; a second one has to be the same."""
        registry = Registry(_bytes(config_in(message.content, _RECORD), _REGISTRY))
        if len(registry.packed) % VERIFYING_KEY_BYTES:
            raise TruncatedError(f"{len(registry.packed)} bytes are no registry")
        key, client = _own_key(context), client_number(context)
        if registry.public_key(client) != key.public:
            raise RegistryError(f"the key of client {client} in the registry is not its own")
        kept = config_in(context.state, _RECORD)
        if kept.get(_REGISTRY, registry.packed) != registry.packed:
            raise RegistryError("the registry differs from the one that was fixed at enrolment")
        kept[_REGISTRY] = registry.packed
        return Message(RecordDict(), reply_to=message)


def enrol(grid: Grid, nodes: Sequence[int]) -> dict[int, int]:
    """Let all nodes register their keys; node → client number.

    A run that goes on from a checkpoint does this again, and gets the keys that the devices have kept.
    """
    questions = [Message(RecordDict(), node, f"query.{ENROL}") for node in nodes]
    answers = {
        node: config_in(reply.content, _RECORD)
        for node, reply in delivered(grid.send_and_receive(questions)).items()
    }
    clients = {node: int(answer[_CLIENT]) for node, answer in answers.items()}  # type: ignore[arg-type]
    if sorted(clients.values()) != list(range(len(nodes))):
        raise RegistryError(f"expected keys of clients 0..{len(nodes) - 1}, got {sorted(clients.values())}")
    in_order = sorted(answers, key=lambda node: clients[node])
    registry = b"".join(_bytes(answers[node], _PUBLIC_KEY) for node in in_order)
    content = RecordDict({_RECORD: ConfigRecord({_REGISTRY: registry})})
    delivered(grid.send_and_receive([Message(content, node, f"query.{REGISTER}") for node in nodes]))
    return clients


def _own_key(context: Context) -> SigningKey:
    if _RECORD not in context.state:
        key = SigningKey.generate()
        context.state[_RECORD] = ConfigRecord({_SIGNING_KEY: key.packed})
    kept = config_in(context.state, _RECORD)
    return SigningKey.parse(_bytes(kept, _SIGNING_KEY))


def _bytes(record: ConfigRecord, key: str) -> bytes:
    value = record.get(key)
    if not isinstance(value, bytes):
        raise TruncatedError(f"a message lacks {key!r}")
    return value
