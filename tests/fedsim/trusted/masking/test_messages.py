"""Messages that were tampered with, cut short, replayed or sent to somebody else."""

import dataclasses

import pytest

from fedsim.trusted.masking.errors import (
    BadSignatureError,
    BrokenSealError,
    ContradictionError,
    NotEnrolledError,
    OutOfTurnError,
    RegistryError,
    TruncatedError,
)
from fedsim.trusted.masking.packing import packed_seats, packed_set
from fedsim.trusted.masking.roster import Roster
from fedsim.trusted.masking.signatures import VERIFYING_KEY_BYTES
from tests.helpers.lying_server import LyingServer


@pytest.fixture
def server():
    """Five devices that have given round keys."""
    server = LyingServer(5)
    server.keys(range(5))
    return server


@pytest.fixture
def agreed(server):
    """Five devices that have given shares."""
    server.shares()
    return server


@pytest.fixture
def signed(agreed):
    """Five devices that have signed the list of those that delivered."""
    for seat in range(5):
        agreed.train(seat)
    agreed.signatures = {seat: agreed.confirm(seat, range(5)) for seat in range(5)}
    return agreed


def flipped(content, position=0):
    changed = bytearray(content)
    changed[position] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("field", ["mask_public", "talk_public", "signature"])
def test_round_keys_that_were_tampered_with(server, field):
    entries = [server.roster[seat] for seat in range(5)]
    entries[3] = dataclasses.replace(entries[3], **{field: flipped(getattr(entries[3], field))})
    with pytest.raises(BadSignatureError, match="round keys of client 3"):
        server.share(0, Roster.of(entries))


def test_round_keys_of_the_device_itself_that_were_tampered_with(server):
    entries = [server.roster[seat] for seat in range(5)]
    entries[0] = dataclasses.replace(entries[0], mask_public=flipped(entries[0].mask_public))
    with pytest.raises(ContradictionError, match="not those of the device that sits there"):
        server.share(0, Roster.of(entries))


def test_a_roster_without_the_device(server):
    with pytest.raises(ContradictionError, match="client 0 is not in the roster"):
        server.share(0, Roster.of([server.roster[seat] for seat in range(1, 5)]))


def test_letters_that_were_tampered_with(agreed):
    order = agreed.call(0)
    for position in (0, 79, 80, len(order["letters"]) - 1):
        with pytest.raises(BrokenSealError):
            agreed.train(0, agreed.call(0, letters=flipped(order["letters"], position)))


def test_letters_that_were_misrouted(agreed):
    honest = agreed.call(0)["letters"]
    swapped = honest[80:160] + honest[:80] + honest[160:]
    for_another = agreed.letters[1][2] + honest[80:]
    back_to_its_sender = agreed.letters[0][1] + honest[80:]
    for letters in (swapped, for_another, back_to_its_sender):
        with pytest.raises(BrokenSealError, match="letter from seat 1"):
            agreed.train(0, agreed.call(0, letters=letters))


def test_letters_of_an_earlier_round(agreed):
    old = agreed.call(0)["letters"]
    agreed.keys(range(5), 2)
    agreed.shares()
    with pytest.raises(BrokenSealError):
        agreed.train(0, agreed.call(0, letters=old))


@pytest.mark.parametrize(
    ("field", "content", "error"),
    [
        ("letters", b"", TruncatedError),
        ("letters", bytes(79), TruncatedError),
        ("senders", b"abc", TruncatedError),
        ("joined", b"", TruncatedError),
        ("joined", b"\xff\xff", TruncatedError),
        ("joined", b"\xff", ContradictionError),
        ("senders", packed_seats([1, 1, 2, 3]), ContradictionError),
        ("senders", packed_seats([1, 2, 3, 9]), ContradictionError),
        ("senders", packed_seats([0, 1, 2, 3]), ContradictionError),
    ],
)
def test_calls_for_training_that_are_malformed(agreed, field, content, error):
    with pytest.raises(error):
        agreed.train(0, agreed.call(0, **{field: content}))


def test_fields_that_are_missing_or_cut_short(signed):
    with pytest.raises(TruncatedError, match="'signers'"):
        signed.ask(0, "unmask", {})
    with pytest.raises(TruncatedError):
        signed.unmask(0, signed.signatures | {4: signed.signatures[4][:-1]})
    signed.keys(range(5), 2)
    with pytest.raises(TruncatedError, match="'roster'"):
        signed.ask(0, "shares", {}, 2)
    for length in (0, 131):
        with pytest.raises(TruncatedError, match="no roster"):
            signed.ask(0, "shares", {"roster": bytes(length)}, 2)
    signed.shares()
    signed.train(0)
    with pytest.raises(TruncatedError, match="'delivered'"):
        signed.ask(0, "confirm", {}, 2)
    with pytest.raises(TruncatedError):
        signed.ask(0, "confirm", {"delivered": b""}, 2)


def test_signatures_that_were_tampered_with_or_misattributed(signed):
    # Four signatures are needed, and a device verifies as many.
    four = {seat: signed.signatures[seat] for seat in range(4)}
    with pytest.raises(BadSignatureError, match="client 2"):
        signed.unmask(0, four | {2: flipped(four[2])})
    with pytest.raises(BadSignatureError, match="client 3"):
        signed.unmask(0, four | {3: signed.signatures[4]})


def test_signatures_of_an_earlier_round(signed):
    old = signed.signatures
    signed.trained(range(5), 2)
    signed.confirm(0, range(5))
    with pytest.raises(BadSignatureError):
        signed.unmask(0, old)


def test_one_signature_does_not_count_twice(signed):
    order = {
        "signers": packed_seats([0, 1, 2, 2]),
        "signatures": b"".join(signed.signatures[seat] for seat in (0, 1, 2, 2)),
    }
    with pytest.raises(ContradictionError, match="names a seat twice"):
        signed.ask(0, "unmask", order)


def test_every_step_happens_once_and_in_order(server):
    """Each message is refused before its turn, and once it has been answered."""

    def refused(*steps):
        for step in steps:
            with pytest.raises(OutOfTurnError):
                step()

    def share():
        server.share(0)

    def train():
        server.train(0, {"joined": packed_set(range(5), 5), "senders": b"", "letters": b""})

    def confirm():
        server.confirm(0, range(5))

    def unmask():
        server.unmask(0, {})

    refused(train, confirm, unmask)
    server.shares()
    refused(share, confirm, unmask)
    for seat in range(5):
        server.train(seat)
    refused(share, train, unmask)
    signatures = {seat: server.confirm(seat, range(5)) for seat in range(5)}
    refused(share, train, confirm)
    server.unmask(0, signatures)
    refused(share, train, confirm, lambda: server.unmask(0, signatures))


def test_a_message_for_another_round(signed):
    signed.round = 2
    with pytest.raises(OutOfTurnError, match="round 2"):
        signed.unmask(0, signed.signatures)


def test_secrets_leave_a_device_as_soon_as_possible(signed):
    assert not {"mask-seed", "own-seed", "talk-key", "agreed"} & set(signed.state(0))
    signed.unmask(0, signed.signatures)
    assert set(signed.state(0)) == {"round", "step"}


def test_a_device_that_never_enrolled_takes_no_part(server):
    for state in server.fleet.grid.states.values():
        del state["masking-identity"]
    with pytest.raises(NotEnrolledError):
        server.keys(range(5), 2)


def register(server, client, registry):
    from flwr.app import ConfigRecord, Message, RecordDict

    content = RecordDict({"masking-identity": ConfigRecord({"registry": registry})})
    server.fleet.grid.send_and_receive([Message(content, server.nodes[client], "query.masking_register")])


def test_the_registry_is_fixed_at_enrolment(server):
    state = server.fleet.grid.states[server.nodes[1]]["masking-identity"]
    registry = state["registry"]
    register(server, 1, registry)
    length = VERIFYING_KEY_BYTES
    for changed in (flipped(registry, 3 * length + 1), registry + bytes(length)):
        with pytest.raises(RegistryError, match="fixed at enrolment"):
            register(server, 1, changed)
    with pytest.raises(RegistryError, match="own key stands 0 times"):
        register(server, 1, flipped(registry, length + 1))
    own = registry[length : 2 * length]
    with pytest.raises(RegistryError, match="own key stands 2 times"):
        register(server, 1, registry + own)
    with pytest.raises(TruncatedError):
        register(server, 1, registry[:-1])


def test_enrolling_again_gives_the_same_keys(server):
    before = server.fleet.grid.states[server.nodes[2]]["masking-identity"]["registry"]
    server.fleet.aggregation.enrol(server.fleet.grid, server.nodes)
    assert server.fleet.grid.states[server.nodes[2]]["masking-identity"]["registry"] == before
