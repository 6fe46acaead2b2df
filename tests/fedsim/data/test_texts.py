"""Texts of people: reading, tokens, pieces, and every kind of bad input."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fedsim.core.errors import UserError
from fedsim.data import Natural, Shakespeare, Texts
from fedsim.data.dataset import Examples
from fedsim.data.text.generated import secret
from fedsim.data.text.people import read_people
from fedsim.data.text.sequences import text_dataset
from fedsim.data.text.tokens import Characters, HashedWords, TokenizerFile, Words, number_of_words
from fedsim.tasks.text import NextWord

PLAY = """Ann:
Good day, good sir.
What news?

Bob:
None at all.

Ann:
Then farewell!
"""
PEOPLE = {"Ann": ["Good day, good sir.\nWhat news?", "Then farewell!"], "Bob": ["None at all."]}


def vocabulary(data):
    assert isinstance(data.task, NextWord)
    return data.task.vocabulary


def write(file, text, encoding="utf-8"):
    file.write_text(text, encoding=encoding)
    return file


def forms(folder):
    rows = [(person, text) for person, texts in PEOPLE.items() for text in texts]
    yield write(folder / "play.txt", PLAY)
    lines = (json.dumps({"client": person, "text": text}) for person, text in rows)
    yield write(folder / "lines.jsonl", "\n".join(lines))
    table = "\n".join(f'{person},"{text}"' for person, text in rows)
    yield write(folder / "table.csv", f"client,text\n{table}\n")


def test_every_form_holds_the_same_texts(tmp_path):
    for file in forms(tmp_path):
        found = read_people(file, "client", "text")
        assert {person: [t.strip() for t in texts] for person, texts in found.items()} == PEOPLE, file.name


def test_a_folder_has_a_file_per_person(tmp_path):
    write(tmp_path / "ann.txt", "\ufeffGood day.")
    write(tmp_path / "bob.txt", "None.")
    assert read_people(tmp_path, "", "") == {"ann": ["Good day."], "bob": ["None."]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("latin.txt", "Ann:\nGrüße".encode("latin-1"), "not a file of texts in UTF-8"),
        ("empty.txt", b"", "holds no text"),
        ("nobody.txt", b"just a text", "holds no text"),
        ("broken.jsonl", b"{", "not a file of texts"),
        ("number.jsonl", b'{"client": 1, "text": 2}', "line 1: expected an object with client"),
        ("other.csv", b"who,what\n1,2\n", "there is no column client"),
        ("short.csv", b"client,text\n1\n", "row 2 is too short"),
        ("nobody.csv", b"client,text\na,hello\n ,foo\n", "row 3: client is empty"),
        ("strange.pdf", b"%PDF", "expected a folder, or a .txt, .jsonl or .csv file"),
    ],
)
def test_bad_files_are_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        Texts(path=tmp_path / name).load(0)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="there is no"):
        Texts(path=tmp_path / "nothing.txt").load(0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"holds no \.txt files"):
        Texts(path=tmp_path / "empty").load(0)


def test_targets_are_the_tokens_that_follow():
    data = text_dataset(PEOPLE, Words(), length=4, min_words=0, test_fraction=0.2)
    words = vocabulary(data)
    ann = data.train.owners == 0
    inputs, targets = data.train.inputs[ann].ravel(), data.train.targets[ann].ravel()
    assert [words[t] for t in inputs[:4]] == ["good", "day", ",", "good"]
    np.testing.assert_array_equal(inputs[1:], targets[:-1])
    assert [words[t] for t in data.train.inputs[data.train.owners == 1].ravel()][:4] == [
        "none",
        "at",
        "all",
        ".",
    ]


def test_nothing_is_predicted_after_padding():
    data = text_dataset({"a": ["one two three"] * 3}, Words(), length=5, min_words=0, test_fraction=0.4)
    for part in (data.train, data.test):
        assert ((part.targets == -1) == (part.inputs == 0)).all()


def test_people_with_few_words_are_left_out():
    data = text_dataset(PEOPLE, Words(), length=2, min_words=4, test_fraction=0.2)
    assert set(data.train.owners) == {0} and "none" not in vocabulary(data)
    with pytest.raises(UserError, match=r"none of the 2 people wrote that much \(at most 8\)"):
        text_dataset(PEOPLE, Words(), length=2, min_words=100, test_fraction=0.2)


def test_a_vocabulary_keeps_the_most_frequent_words():
    tokeniser = Words(vocabulary=5).fit(["b a a b c b"])
    assert tokeniser.vocabulary == ("<pad>", "<other>", "<end>", "b", "a")
    assert tokeniser.encode("a b c zebra") == [4, 3, 1, 1, 2]


def test_characters_and_buckets():
    assert Characters().fit(["ab"]).encode("ba!") == [4, 3, 1, 2]
    hashed = HashedWords(buckets=7).fit([])
    assert len(hashed.vocabulary) == 10
    assert hashed.encode("One one") == [hashed.encode("one")[0]] * 2 + [2]


def test_a_tokenizer_file(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"[UNK]": 0, "good": 1, "day": 2}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "t.json"))
    tokeniser = TokenizerFile(path=tmp_path / "t.json").fit([])
    assert tokeniser.vocabulary == ("<pad>", "<end>", "[UNK]", "good", "day")
    assert tokeniser.encode("good night") == [3, 2, 1]
    write(tmp_path / "bad.json", "{}")
    with pytest.raises(UserError, match="not a tokenizer file"):
        TokenizerFile(path=tmp_path / "bad.json").fit([])


def test_generated_people_have_a_secret_each():
    source = Texts(people_generated=5)
    people = source.people(3)
    assert people == source.people(3) != source.people(4)
    data = source.load(3)
    assert len(people) == 5 and min(sum(map(number_of_words, texts)) for texts in people.values()) >= 200
    for person in range(5):
        token = vocabulary(data).index(secret(person))
        writers = data.train.owners[(data.train.inputs == token).any(axis=1)]
        assert set(writers) == {person}


def test_the_natural_partition_gives_everybody_their_own():
    owners = np.array([2, 0, 2, 1, 0])
    examples = Examples(owners, owners, {}, owners)
    rng = np.random.default_rng(0)
    assert [list(o) for o in Natural().deal(examples, 3, 1, rng)] == [[1, 4], [3], [0, 2]]
    two = Natural().deal(examples, 2, 1, rng)
    assert all(len(set(owners[o])) == 1 for o in two) and len(two) == 2
    with pytest.raises(UserError, match=r"federation\.clients is 4: the data have 3 people"):
        Natural().deal(examples, 4, 1, rng)
    with pytest.raises(UserError, match="needs data that say whose"):
        Natural().deal(Examples(owners, owners), 1, 1, rng)


def test_the_plays():
    file = Path(os.environ.get("FEDSIM_DATA", "")) / "shakespeare.txt"
    if not file.exists():
        pytest.skip("FEDSIM_DATA names no folder with shakespeare.txt")
    data = Shakespeare(path=file).load(0)
    assert len(np.unique(data.train.owners)) == 137 and data.task.outputs == 8000
