import gzip
import itertools
import json

import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader
from allennlp.data.dataset_readers.dataset_reader import DistributedInfo, WorkerInfo

from allennlp_elmo_plugin.data import truncated_bptt_reader as truncated_bptt_lm
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.data.windows import TextPosition
from tests.data.contiguous_rows_test import plain_windows
from tests.support.corpora import word_windows

SENTENCES = [[f"{i}.{j}" for j in range(i % 7)] for i in range(60)]
N_PAIRS = sum(len(sentence) + 1 for sentence in SENTENCES)


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(3):
        text = "".join(" ".join(s) + "\n" for s in SENTENCES[20 * number : 20 * number + 20])
        (folder / f"{number}.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def read_windows(reader, path, names=("tokens", "targets")):
    """The rows of each window, put together by the field `window`."""
    made = []
    for instance in reader.read(path):
        number, row, batch_size = instance["window"].human_readable_repr()
        assert batch_size == reader.batch_size
        if row == 0:
            made.append(tuple([] for _ in names))
        assert number == len(made) - 1 and row == len(made[-1][0])
        for rows, name in zip(made[-1], names):
            rows.append(instance[name].words)
    return made


BACKWARD = ("tokens_reverse", "targets_reverse")


@pytest.mark.parametrize("drop_last", [True, False])
def test_in_order(corpus, drop_last):
    reader = TruncatedBpttLmReader(4, num_steps=5, drop_last=drop_last)
    for _ in range(2):  # every pass is the same
        for reverse, names in ((False, ("tokens", "targets")), (True, BACKWARD)):
            expected = word_windows(SENTENCES, 4, 5, reverse=reverse, drop_last=drop_last)
            assert read_windows(reader, corpus, names) == list(map(tuple, expected))


def test_fields(corpus):
    reader = DatasetReader.from_params(
        Params({"type": "truncated_bptt_lm", "batch_size": 4, "bidirectional": False})
    )
    instance = next(iter(reader.read(str(corpus))))
    assert set(instance) == {"tokens", "targets", "window"}
    reader = TruncatedBpttLmReader(4, num_steps=5, max_characters_per_token=12)
    instance = next(iter(reader.read(corpus)))
    assert set(instance) == {"tokens", "targets", *BACKWARD, "window"}
    assert instance["tokens"].as_tensor({"num_words": 5}).shape == (5, 12)
    assert instance["targets"].padding_value == -100
    reader = TruncatedBpttLmReader(4, max_characters_per_token=None)
    assert next(iter(reader.read(corpus)))["tokens"].namespace == "lm_tokens"


class TestContiguous:
    @pytest.mark.parametrize("drop_last", [True, False])
    def test_rows_read_on_across_lines(self, corpus, drop_last):
        reader = TruncatedBpttLmReader(4, 5, drop_last=drop_last, contiguous=True)
        for _ in range(2):  # every pass is the same
            for direction, names in (("forward", ("tokens", "targets")), ("backward", BACKWARD)):
                expected = plain_windows(SENTENCES, 4, 5, direction, drop_last)
                assert read_windows(reader, corpus, names) == expected

    def test_a_batch_of_one_row_reads_the_whole_text(self, corpus):
        reader = TruncatedBpttLmReader(1, 5, drop_last=False, contiguous=True)
        rows = [window[1][0] for window in read_windows(reader, corpus)]
        assert sum(rows, []) == sum(([*sentence, "</S>"] for sentence in SENTENCES), [])

    def test_a_full_lexicon_changes_nothing(self, corpus, monkeypatch):
        expected = read_windows(TruncatedBpttLmReader(4, 5, contiguous=True), corpus)
        monkeypatch.setattr("allennlp_elmo_plugin.data.lexicon.MAX_WORDS", 20)
        assert read_windows(TruncatedBpttLmReader(4, 5, contiguous=True), corpus) == expected

    def test_shuffling_is_refused(self):
        with pytest.raises(ConfigurationError, match="contiguous and shuffle_sentences"):
            TruncatedBpttLmReader(4, contiguous=True, shuffle_sentences=True)

    def test_n_rows_of_a_small_text(self, tmp_path):
        path = tmp_path / "small.txt"
        path.write_text("a b c\n\nd\n")
        with pytest.raises(ConfigurationError, match="7 words.*don't fill 3 rows of 3"):
            list(TruncatedBpttLmReader(3, 3, contiguous=True).read(path))


class TestShuffle:
    def orders(self, reader, corpus, n_passes=1):
        """Of forward and backward sentences in each pass, in the order in which they are read."""
        passes = []
        for _ in range(n_passes):
            made = []
            for names in (("tokens", "targets"), BACKWARD):
                reader.set_epoch(corpus, len(passes))
                rows = read_windows(reader, corpus, names)
                words = [word for window in rows for word in window[0][0]]
                made.append([word for word in words if word not in ("<S>", "</S>")])
            passes.append(tuple(made))
        return passes

    def test_every_sentence_once_in_an_order_of_its_own(self, corpus):
        reader = TruncatedBpttLmReader(1, 5, shuffle_sentences=True, drop_last=False)
        (forward, backward), (second, _) = self.orders(reader, corpus, 2)
        words = [word for sentence in SENTENCES for word in sentence]
        for order in (forward, backward, second):
            assert sorted(order) == sorted(words)
            assert order != words
        assert forward != second
        assert [w.split(".")[0] for w in forward] != [w.split(".")[0] for w in backward]

    def test_order_depends_on_seed_and_pass_alone(self, corpus):
        reader = TruncatedBpttLmReader(2, 5, shuffle_sentences=True, seed=7)
        passes = [read_windows(reader, corpus) for _ in range(3)]
        assert passes[0] != passes[1] != passes[2]
        assert reader.get_epoch(corpus) == 3
        again = TruncatedBpttLmReader(2, 5, shuffle_sentences=True, seed=7)
        again.set_epoch(str(corpus), 2)
        assert read_windows(again, corpus) == passes[2]
        other = TruncatedBpttLmReader(2, 5, shuffle_sentences=True, seed=8)
        assert read_windows(other, corpus) != passes[0]

    def test_passes_are_counted_for_each_path(self, corpus):
        reader = TruncatedBpttLmReader(2, 5, shuffle_sentences=True)
        first = read_windows(reader, corpus)
        read_windows(reader, corpus / "0.gz")
        reader.set_epoch(corpus, 0)
        assert read_windows(reader, corpus) == first


class TestTail:
    @pytest.mark.parametrize("shuffle", [False, True])
    @pytest.mark.parametrize("batch_size, num_steps", [(1, 1), (3, 7), (50, 10)])
    def test_every_pair_once_in_both_directions(self, corpus, shuffle, batch_size, num_steps):
        reader = TruncatedBpttLmReader(
            batch_size, num_steps, shuffle_sentences=shuffle, drop_last=False
        )
        n_batches = set()
        for names in (("tokens", "targets"), BACKWARD):
            reader.set_epoch(corpus, 0)
            made = read_windows(reader, corpus, names)
            pairs = [
                pair for inputs, targets in made for pair in zip(sum(inputs, []), sum(targets, []))
            ]
            assert len(pairs) == N_PAIRS
            n_batches.add(len(made))
        assert len(n_batches) == 1

    def test_one_direction_ends_before_the_other(self, tmp_path):
        # Read in different orders, the long sentence comes first in one direction, last in the
        # other, and then has windows of its own.
        path = tmp_path / "text"
        path.write_text("a\n" * 20 + "b " * 50 + "\n")
        reader = TruncatedBpttLmReader(2, 5, shuffle_sentences=True, drop_last=False)
        ends = set()
        for _ in range(10):
            last = list(reader.read(path))[-2:]
            ends.add(tuple(sum(len(row[name]) for row in last) for name in ("tokens", BACKWARD[0])))
            # Both still make tensors of one shape.
            shapes = {
                row[n].as_tensor(row[n].get_padding_lengths()).shape
                for row in last
                for n in ("tokens", BACKWARD[0])
            }
            assert shapes == {(5, 50)}
        assert any(not forward for forward, _ in ends) and any(not back for _, back in ends)

    def test_drop_last_stops_at_the_earlier_end(self, tmp_path):
        path = tmp_path / "text"
        path.write_text("a\n" * 20 + "b " * 50 + "\n")
        reader = TruncatedBpttLmReader(2, 5, shuffle_sentences=True)
        for _ in range(10):
            for names in (("tokens", "targets"), BACKWARD):
                assert all(len(r) == 5 for w in read_windows(reader, path, names) for r in w[0])


class TestDistributed:
    @pytest.mark.parametrize("order", ["shuffle_sentences", "contiguous"])
    @pytest.mark.parametrize("drop_last", [True, False])
    def test_processes_share_the_rows(self, corpus, drop_last, order):
        settings = {"drop_last": drop_last, order: True}
        whole = TruncatedBpttLmReader(4, 5, **settings)
        parts = []
        for rank in range(2):
            reader = TruncatedBpttLmReader(2, 5, **settings)
            reader._set_distributed_info(DistributedInfo(2, rank))
            parts.append(read_windows(reader, corpus))
        joined = [tuple(a + b for a, b in zip(first, second)) for first, second in zip(*parts)]
        assert joined == read_windows(whole, corpus)
        assert len(parts[0]) == len(parts[1])

    @pytest.mark.parametrize("n_processes", [1, 2])
    def test_dropped_words_are_logged_once_a_pass(self, corpus, caplog, n_processes):
        caplog.set_level("INFO")
        for rank in range(n_processes):
            reader = TruncatedBpttLmReader(4 // n_processes, 5, shuffle_sentences=True)
            reader._set_distributed_info(DistributedInfo(n_processes, rank))
            counts = [len(read_windows(reader, corpus)) for _ in range(4)]
        expected = [
            f"{corpus}: dropped the last {N_PAIRS - n * 20} words to predict of pass {number}, "
            "which do not fill 4 rows of 5 (drop_last)"
            for number, n in enumerate(counts)
        ]
        assert [record.getMessage() for record in caplog.records] == expected
        list(TruncatedBpttLmReader(4, 5, drop_last=False).read(corpus))
        list(TruncatedBpttLmReader(4, 5, max_instances=8).read(corpus))
        assert len(caplog.records) == len(expected)

    def test_one_worker_reads_all_and_more_are_refused(self, corpus):
        reader = TruncatedBpttLmReader(4, 5)
        reader._set_worker_info(WorkerInfo(1, 0))
        assert read_windows(reader, corpus) == read_windows(TruncatedBpttLmReader(4, 5), corpus)
        reader._set_worker_info(WorkerInfo(2, 0))
        with pytest.raises(ConfigurationError, match="num_workers is 2.*0 or 1"):
            next(iter(reader.read(corpus)))


class TestCountBatches:
    @pytest.mark.parametrize("contiguous", [False, True])
    @pytest.mark.parametrize("drop_last", [True, False])
    @pytest.mark.parametrize("n_processes", [1, 2])
    def test_exact(self, corpus, drop_last, n_processes, contiguous):
        reader = TruncatedBpttLmReader(3, 4, drop_last=drop_last, contiguous=contiguous)
        reader._set_distributed_info(DistributedInfo(n_processes, 0))
        assert reader.count_batches(corpus) == len(read_windows(reader, corpus)) > 0

    def test_estimate(self, tmp_path, monkeypatch):
        for number in range(40):
            (tmp_path / f"{number}").write_text("some words in a line\n" * 500)
        (tmp_path / "empty").touch()
        reader = TruncatedBpttLmReader(3, 4)
        exact = reader.count_batches(tmp_path)
        monkeypatch.setattr(truncated_bptt_lm, "_EXACT_COUNT_BYTES", 1000)
        monkeypatch.setattr(truncated_bptt_lm, "_SAMPLE_BYTES", 1000)
        assert reader.count_batches(tmp_path) == pytest.approx(exact, rel=0.01)
        reader = TruncatedBpttLmReader(3, 4, contiguous=True)  # always exact
        assert reader.count_batches(tmp_path) == 40 * 500 * 6 // 3 // 4

    def test_max_instances(self, corpus):
        reader = TruncatedBpttLmReader(3, 4, max_instances=6)
        assert reader.count_batches(corpus) == len(read_windows(reader, corpus)) == 2


class TestBadInput:
    def test_corpus_smaller_than_one_batch(self, tmp_path):
        path = tmp_path / "small.txt"
        path.write_text("a b c\n\nd\n")
        with pytest.raises(
            ConfigurationError, match="small.txt is smaller than one batch"
        ) as error:
            list(TruncatedBpttLmReader(3, 3).read(path))
        for part in ("3 sentences", "7 words", "3 rows of 3", "batch_size", "drop_last false"):
            assert part in str(error.value)
        assert len(list(TruncatedBpttLmReader(3, 3, drop_last=False).read(path))) == 6

    def test_no_text_in_gzip(self, tmp_path):
        (tmp_path / "a.gz").write_bytes(gzip.compress(b""))
        for drop_last in (True, False):
            with pytest.raises(ConfigurationError, match="no text to read in .*a.gz"):
                list(TruncatedBpttLmReader(3, drop_last=drop_last).read(tmp_path / "a.gz"))

    def test_missing_file(self, tmp_path):
        with pytest.raises(ConfigurationError, match="a.txt does not exist"):
            list(TruncatedBpttLmReader(3).read(tmp_path / "a.txt"))

    def test_undecodable(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_bytes(b"a b\n" * 30 + b"\xe9t\xe9\n")
        with pytest.raises(ConfigurationError, match="a.txt, line 31"):
            list(TruncatedBpttLmReader(1, 3).read(path))
        assert list(TruncatedBpttLmReader(1, 3, encoding_errors="replace").read(path))

    @pytest.mark.parametrize(
        "settings, message",
        [
            ({"batch_size": 0}, "batch_size is 0"),
            ({"batch_size": None}, "batch_size is None, but must be at least 1"),
            ({"num_steps": 0}, "num_steps is 0"),
            ({"max_characters_per_token": 2}, "max_characters_per_token is 2"),
            ({"encoding_errors": "ignore"}, "encoding_errors is 'ignore'"),
            ({"max_instances": 6}, "max_instances is 6.*multiple"),
        ],
    )
    def test_settings(self, settings, message):
        with pytest.raises(ConfigurationError, match=message):
            TruncatedBpttLmReader(**{"batch_size": 4, **settings})


def test_position_as_plain_values(corpus):
    reader = TruncatedBpttLmReader(4, 9)
    field = [instance["window"] for instance in itertools.islice(reader.read(corpus), 8)][-1]
    position = field.position
    assert position.n_windows == 2
    assert TextPosition(**json.loads(json.dumps(position._asdict()))) == position
