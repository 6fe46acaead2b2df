"""What a server that lies, with or without colluding devices, tries in order to see a single update."""

import dataclasses
import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedsim.trusted.masking import Masked
from fedsim.trusted.masking.errors import (
    BadSignatureError,
    BrokenSealError,
    CohortTooSmallError,
    ContradictionError,
    OutOfTurnError,
    WrongSharesError,
)
from fedsim.trusted.masking.keys import Binding
from fedsim.trusted.masking.packing import packed_seats, packed_set
from fedsim.trusted.masking.roster import Entry, Roster
from fedsim.trusted.masking.secret_sharing import SHARE_BYTES, combine
from fedsim.trusted.masking.signatures import SigningKey, delivered_statement, keys_statement
from tests.helpers.fleet import Fleet
from tests.helpers.lying_server import LyingServer, drawn_updates


def test_a_server_that_knows_both_secrets_sees_the_update():
    """The attacks below would succeed if they got the shares that they are after."""
    server = LyingServer(4)
    server.keys(range(4))
    server.shares()
    state = server.state(1)
    vector = server.train(1)
    bare = server.without_masks(vector, 1, state["own-seed"], state["mask-seed"], [0, 2, 3])
    assert server.is_update_of(bare, 1)
    assert not server.is_update_of(vector, 1)


@pytest.mark.parametrize("cohort", [[0], [0, 1]])
def test_a_device_does_not_join_a_cohort_in_which_it_is_alone(cohort):
    server = LyingServer(5)
    server.keys(cohort)
    with pytest.raises(CohortTooSmallError):
        server.share(0)


def test_a_device_has_its_own_minimum_cohort():
    server = LyingServer(5, Masked(minimum_cohort=5))
    server.keys([0, 1, 2, 3])
    with pytest.raises(CohortTooSmallError):
        server.share(0)


def keys_made_by_the_server(roster, seat, signing_key):
    """The entry of a seat with keys that the server knows."""
    client = roster[seat].client
    mask_public, talk_public = (
        X25519PrivateKey.generate().public_key().public_bytes_raw() for _ in ("mask", "talk")
    )
    signature = signing_key.sign(keys_statement(1, client, mask_public, talk_public))
    return Entry(client, mask_public, talk_public, signature)


@pytest.mark.parametrize("seats", [[1], [1, 2, 3]])
def test_the_server_cannot_put_its_own_keys_on_the_other_seats(seats):
    server = LyingServer(4)
    honest, own = server.keys(range(4)), SigningKey.generate()
    entries = [
        keys_made_by_the_server(honest, s, own) if s in seats else honest[s] for s in range(len(honest))
    ]
    with pytest.raises(BadSignatureError, match="round keys of client 1"):
        server.share(0, Roster.of(entries))


def test_the_server_cannot_invent_clients():
    server = LyingServer(4)
    honest, own = server.keys(range(4)), SigningKey.generate()
    ghost = dataclasses.replace(keys_made_by_the_server(honest, 3, own), client=77)
    with pytest.raises(ContradictionError, match="client 77 has never enrolled"):
        server.share(0, Roster.of([honest[0], honest[1], ghost]))


def test_a_client_sits_on_one_seat():
    server = LyingServer(4)
    honest = server.keys(range(4))
    with pytest.raises(ContradictionError, match="names each client once"):
        Roster.of([honest[0], honest[1], honest[1], honest[2]])


def test_keys_of_an_earlier_round_do_not_pass():
    server = LyingServer(4)
    old = server.keys(range(4), 1)
    new = server.keys(range(4), 2)
    with pytest.raises(BadSignatureError, match="round keys of client 2"):
        server.share(0, Roster.of([new[0], new[1], old[2], new[3]]))


def test_a_device_makes_one_set_of_keys_per_round():
    """Else the server sums two cohorts in one round, and the difference is one update."""
    server = LyingServer(4)
    server.trained(range(4))
    with pytest.raises(OutOfTurnError, match="keys for round 1, after those for round 1"):
        server.keys([1, 2, 3])
    server.keys(range(4), 2)
    with pytest.raises(OutOfTurnError, match="keys for round 1, after those for round 2"):
        server.keys(range(4), 1)


def shares_of(server, answers, holders, owner):
    """Point → share of one owner, from the answers of some holders."""
    found = {}
    for holder in holders:
        senders = [s for s, letters in server.letters.items() if holder in letters]
        start = SHARE_BYTES * senders.index(owner)
        found[holder + 1] = answers[holder][start : start + SHARE_BYTES]
    return found


def under_two_lists(threshold):
    """Five devices. Two are told that device 0 delivered, two that it dropped out; device 4 signs both lists.

    Returns the server, the vectors, what the colluder holds, and the signatures under either list.
    """
    server = LyingServer(5, Masked(threshold=threshold))
    vectors = server.trained(range(5))
    colluder, key = server.state(4), server.signing_key(4)
    signed = []
    for told, delivered in (((0, 1), range(5)), ((2, 3), range(1, 5))):
        statement = delivered_statement(
            Binding(1, server.roster.digest), colluder["joined"], packed_set(delivered, 5)
        )
        signatures = {seat: server.confirm(seat, delivered) for seat in told}
        signed.append(signatures | {4: key.sign(statement)})
    return server, vectors, colluder, *signed


def test_a_colluder_and_two_lists_reveal_nothing():
    server, _, _, with_0, without_0 = under_two_lists(Masked().threshold)
    for seat, mine, theirs in ((1, with_0, without_0), (2, without_0, with_0)):
        with pytest.raises(CohortTooSmallError, match="3 devices confirm the list, expected 4"):
            server.unmask(seat, mine)
        with pytest.raises((BadSignatureError, ContradictionError)):
            server.unmask(seat, theirs | mine)


def test_a_threshold_of_three_fifths_does_not_stand_one_colluder_of_five():
    """The bound on colluders is tight: less than 2 t - 1 of a cohort, here a fifth. Hence the default."""
    server, vectors, colluder, with_0, without_0 = under_two_lists(0.6)
    answers = {1: server.unmask(1, with_0), 2: server.unmask(2, without_0), 3: server.unmask(3, without_0)}
    held = colluder["held"][: 2 * SHARE_BYTES]
    own_seed = combine({**shares_of(server, answers, [1], 0), 5: held[:SHARE_BYTES]})
    mask_seed = combine(shares_of(server, answers, [2, 3], 0))
    assert server.is_update_of(server.without_masks(vectors[0], 0, own_seed, mask_seed, [1, 2, 3, 4]), 0)


@pytest.mark.parametrize("clients", [6, 100])
def test_devices_that_were_told_different_lists_do_not_answer(clients):
    """In a small cohort a device verifies every signature, in a large one a sample of them."""
    server = LyingServer(clients)
    server.trained(range(clients))
    everybody, half = list(range(clients)), clients // 2
    lists = {seat: everybody if seat < half else everybody[1:] for seat in everybody}
    signatures = {seat: server.confirm(seat, lists[seat]) for seat in everybody}
    for seat in (1, clients - 1):
        with pytest.raises((BadSignatureError, ContradictionError)):
            server.unmask(seat, signatures)


def test_a_device_signs_one_list_per_round():
    server = LyingServer(5)
    server.trained(range(5))
    server.confirm(1, range(5))
    with pytest.raises(OutOfTurnError):
        server.confirm(1, [1, 2, 3, 4])


def test_a_device_that_delivered_does_not_believe_that_it_dropped_out():
    server = LyingServer(5)
    server.trained(range(5))
    with pytest.raises(ContradictionError, match="said to have dropped out"):
        server.confirm(0, [1, 2, 3, 4])


def test_a_device_keeps_its_own_threshold():
    """The order names no threshold; lists that only a lower one allows are refused."""
    server = LyingServer(5, Masked(threshold=0.9))
    server.trained(range(5))
    with pytest.raises(CohortTooSmallError, match="a sum of 4 updates"):
        server.confirm(0, [0, 1, 2, 3])
    signatures = {seat: server.confirm(seat, range(5)) for seat in range(5)}
    with pytest.raises(CohortTooSmallError, match="4 devices confirm the list, expected 5"):
        server.unmask(0, {seat: signatures[seat] for seat in range(4)})
    assert len(server.unmask(0, signatures)) == 4 * SHARE_BYTES


def test_shares_of_the_same_device_come_from_one_of_its_secrets():
    """Device 4 dropped out after it had sent its vector: its mask key comes off, its own mask stays."""
    server = LyingServer(7, Masked(threshold=0.6))
    server.keys(range(7))
    server.shares()
    secrets = {seat: server.state(seat) for seat in range(7)}
    vectors = [server.train(seat) for seat in range(7)]
    there = [0, 1, 2, 3, 5, 6]
    signatures = {seat: server.confirm(seat, there) for seat in there}
    answers = {seat: server.unmask(seat, signatures) for seat in there}
    found = combine(dict(list(shares_of(server, answers, there, 4).items())[:4]))
    assert found == secrets[4]["mask-seed"]
    bare = server.without_masks(vectors[4], 4, os.urandom(31), found, [0, 1, 2, 3, 5, 6])
    assert not server.is_update_of(bare, 4)
    holders = [1, 2, 3, 5]
    assert combine(shares_of(server, answers, holders, 0)) == secrets[0]["own-seed"]


@pytest.mark.parametrize("clients", [1, 2])
def test_sums_of_one_or_two_are_not_published(clients):
    summed, replies = Fleet(drawn_updates(clients), Masked()).sum()
    assert replies == []
    assert summed.members == ()
    assert np.isnan(summed.weight)
    assert not summed.total.any()


@pytest.mark.parametrize("secret", ["own mask", "mask key"])
def test_wrong_shares_do_not_combine_in_silence(secret):
    """Whatever a faulty device hands out, the server notices: it never decodes a wrong sum."""
    fleet = Fleet(drawn_updates(5), Masked(threshold=0.6))
    summing = fleet.summation.open_round(fleet.invitation())
    replies = list(fleet.grid.send_and_receive(summing.messages))
    if secret == "mask key":
        replies = replies[:-1]
    ask = summing._protocol._ask

    def with_a_faulty_device(query, orders):
        answers = ask(query, orders)
        if query == "masking_unmask":
            first = answers[min(answers)]
            owner = 0 if secret == "own mask" else len(first["shares"]) // SHARE_BYTES - 1
            shares = bytearray(first["shares"])
            shares[owner * SHARE_BYTES] ^= 1
            first["shares"] = bytes(shares)
        return answers

    summing._protocol._ask = with_a_faulty_device
    with pytest.raises(WrongSharesError):
        summing.close(replies)


def test_a_device_hides_among_those_that_joined():
    server = LyingServer(6)
    server.keys(range(6))
    server.shares()
    with pytest.raises(CohortTooSmallError, match="masks of 2 devices"):
        server.train(
            0,
            {
                "joined": packed_set([0, 1], 6),
                "senders": packed_seats([1]),
                "letters": server.letters[1][0],
            },
        )
    with pytest.raises(ContradictionError):
        server.train(0, server.call(0, joined=packed_set([1, 2, 3, 4, 5], 6)))
    with pytest.raises(ContradictionError):
        server.train(0, server.call(0, joined=packed_set([0, 1, 2, 3], 6)))


def test_who_never_joined_cannot_have_delivered():
    server = LyingServer(6)
    server.keys(range(6))
    server.shares()
    del server.letters[5]
    for seat in range(5):
        server.train(seat)
    with pytest.raises(ContradictionError, match="never joined"):
        server.confirm(0, range(6))


def test_devices_with_different_rosters_cannot_read_each_other():
    server = LyingServer(7)
    whole = server.keys(range(7))
    part = Roster.of([whole[seat] for seat in range(6)])
    server.letters = {}
    for seat in range(6):
        roster = whole if seat == 0 else part
        answer = server.share(seat, roster)
        neighbours = [s for s in range(len(roster)) if s != seat]
        letters = [answer["letters"][i : i + 80] for i in range(0, len(answer["letters"]), 80)]
        server.letters[seat] = dict(zip(neighbours, letters, strict=True))
    server.roster = part
    with pytest.raises(BrokenSealError, match="letter from seat 0"):
        server.train(1)
