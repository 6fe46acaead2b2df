"""A server that goes through the masking protocol by hand, and lies where a test wants it to."""

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict

from fedsim.flower import vector_record
from fedsim.trusted.masking import Masked
from fedsim.trusted.masking.keys import Binding, mask_key_pair, own_mask_key
from fedsim.trusted.masking.letters import LETTER_BYTES
from fedsim.trusted.masking.masks import add_masks
from fedsim.trusted.masking.packing import packed_seats, packed_set, rows, unpacked_seats
from fedsim.trusted.masking.roster import Entry, Roster
from fedsim.trusted.masking.signatures import SigningKey
from tests.helpers.fleet import Fleet

DIM = 300


def drawn_updates(clients, dim=DIM):
    rng = np.random.default_rng(5)
    return [rng.normal(scale=0.02, size=dim).astype(np.float32) for _ in range(clients)]


class LyingServer:
    """Each step takes the honest order, changed by keyword arguments; seats are those of `clients`."""

    def __init__(self, clients, settings=None):
        self.settings = settings or Masked()
        self.fleet = Fleet(drawn_updates(clients), self.settings)
        self.nodes = list(self.fleet.grid.get_node_ids())

    def ask(self, client, query, order, server_round=1):
        config = ConfigRecord({"server-round": server_round})
        content = RecordDict({"config": config, "masking": ConfigRecord({"round": server_round, **order})})
        message = Message(content, self.nodes[client], f"query.masking_{query}")
        (reply,) = self.fleet.grid.send_and_receive([message])
        return dict(reply.content["masking"])

    def keys(self, clients, server_round=1):
        """Ask for round keys; the roster of the clients."""
        self.clients, self.round = list(clients), server_round
        entries = [Entry.parse(self.ask(k, "keys", {}, server_round)["entry"]) for k in self.clients]
        self.roster = Roster.of(entries)
        return self.roster

    def share(self, seat, roster=None):
        return self.ask(self.clients[seat], "shares", {"roster": (roster or self.roster).packed}, self.round)

    def shares(self):
        """Ask everybody for shares; sender → receiver → letter."""
        self.letters = {}
        for seat in range(len(self.clients)):
            answer = self.share(seat)
            neighbours = unpacked_seats(answer["neighbours"], len(self.roster))
            letters = rows(answer["letters"], LETTER_BYTES, len(neighbours))
            self.letters[seat] = dict(zip(neighbours, letters, strict=True))
        return self.letters

    def call(self, seat, **lies):
        """The order that calls a device for training."""
        senders = [other for other, letters in self.letters.items() if seat in letters]
        return {
            "joined": packed_set(self.letters, len(self.roster)),
            "senders": packed_seats(senders),
            "letters": b"".join(self.letters[sender][seat] for sender in senders),
        } | lies

    def train(self, seat, order=None):
        """The masked vector of one device."""
        content = RecordDict(
            {
                "arrays": vector_record(np.zeros(DIM, dtype=np.float32)),
                "config": ConfigRecord({"server-round": self.round}),
                "masking": ConfigRecord({"round": self.round} | (order or self.call(seat))),
            }
        )
        (reply,) = self.fleet.grid.send_and_receive(
            [Message(content, self.nodes[self.clients[seat]], "train")]
        )
        return reply.content["arrays"]["masked"].numpy().copy()

    def trained(self, clients, server_round=1):
        """Everybody has sent a vector; returns the vectors."""
        self.keys(clients, server_round)
        self.shares()
        return [self.train(seat) for seat in range(len(self.clients))]

    def confirm(self, seat, delivered):
        """The signature of one device under a list of devices that delivered."""
        order = {"delivered": packed_set(delivered, len(self.roster))}
        return self.ask(self.clients[seat], "confirm", order, self.round)["signature"]

    def unmask(self, seat, signatures):
        """The shares that one device hands out; `signatures` maps seats to signatures."""
        order = {"signers": packed_seats(list(signatures)), "signatures": b"".join(signatures.values())}
        return self.ask(self.clients[seat], "unmask", order, self.round)["shares"]

    def state(self, seat):
        """What a device that colludes tells the server: all it remembers."""
        return dict(self.fleet.grid.states[self.nodes[self.clients[seat]]]["masking"])

    def signing_key(self, seat):
        """The long-term key of a device that colludes."""
        state = self.fleet.grid.states[self.nodes[self.clients[seat]]]
        key = state["masking-identity"]["signing-key"]
        assert isinstance(key, bytes)
        return SigningKey.parse(key)

    def without_masks(self, vector, seat, own_seed, mask_seed, others):
        """A vector of which both secrets are known."""
        binding = Binding(self.round, self.roster.digest)
        bare, key = vector.copy(), mask_key_pair(mask_seed)
        pairs = {
            other: binding.pair_mask_key(key, self.roster[other].mask_public, (seat, other))
            for other in others
        }
        add_masks(
            bare,
            plus=[pairs[other] for other in others if other < seat],
            minus=[own_mask_key(own_seed), *(pairs[other] for other in others if other > seat)],
        )
        return bare

    def is_update_of(self, words, client):
        """Whether words are what this client sent, without any mask."""
        update, _ = self.settings.fixed_point.decode(words)
        return bool(np.abs(update - self.fleet.updates[client]).max() < 1e-4)
