"""Files of layers: what is in them, killed and resumed runs, shards, batches and keys."""

import functools
import io
import itertools
import json
import os
import signal
from contextlib import suppress

import h5py
import numpy as np
import pytest

from allennlp_elmo_plugin.embedding import corpus_embedder, layers_file
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.embedding.layers_file import read_summary
from allennlp_elmo_plugin.embedding.parts import PartsFolder
from tests.support.layers_files import assert_same_files, make_text
from tests.support.testing import fork, limit_file_size, read_arrays, write_random_elmo

STATES = ["carried", "settled", "zero"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=4)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(corpus_embedder, "PART_WORDS", 40)


def embed(files, text, path, initial_state="settled", batch_size=4, batch_tokens=40, **arguments):
    embedder = ElmoEmbedder(*files, initial_state=initial_state)
    file = io.StringIO(text, newline="\n")
    sizes = {"batch_size": batch_size, "batch_tokens": batch_tokens}
    return embedder.embed_file(file, str(path), **sizes, **arguments)


@pytest.fixture(scope="module", params=STATES)
def uninterrupted(request, files, tmp_path_factory):
    """Initial state, text, and the file of one run."""
    path = tmp_path_factory.mktemp("uninterrupted") / "o"
    text = make_text(70)
    with pytest.MonkeyPatch.context() as context:
        context.setattr(corpus_embedder, "PART_WORDS", 40)
        embed(files, text, path, request.param)
    return request.param, text, path


def test_every_line_has_its_layers(uninterrupted, files):
    initial_state, text, path = uninterrupted
    sentences = [line.split(" ") if line else [] for line in text.split("\n")]
    embedder = ElmoEmbedder(*files, initial_state=initial_state)
    with h5py.File(path, "r") as file:
        assert len(file) == len(sentences) + 1
        for i, layers in enumerate(embedder.embed_sentences(sentences, 4)):
            np.testing.assert_allclose(file[str(i)][...], layers, atol=1e-5, err_msg=str(i))


class Killed(BaseException):
    pass


def interrupt(files, text, path, n_parts, **arguments):
    """A run that ends after so many parts."""
    write, count = PartsFolder.write, itertools.count()

    def die(self, *part):
        if next(count) == n_parts:
            raise Killed
        write(self, *part)

    with pytest.MonkeyPatch.context() as context:
        context.setattr(PartsFolder, "write", die)
        with pytest.raises(Killed):
            embed(files, text, path, **arguments)


class TestResume:
    @pytest.mark.parametrize("initial_state, compression", [("settled", None), ("carried", "gzip")])
    def test_killed_before_every_system_call(self, files, tmp_path, initial_state, compression):
        text, path = make_text(3), tmp_path / "o"

        def run():
            embed(files, text, path, initial_state, resume=True, compression=compression)

        embed(files, text, tmp_path / "expected", initial_state)
        for moment in range(1000):
            killed = fork(run, kill_at=moment) == signal.SIGKILL
            if path.exists():
                assert_same_files(path, tmp_path / "expected")
            run()
            assert_same_files(path, tmp_path / "expected")
            # The next writer removes what is hidden.
            assert set(os.listdir(tmp_path)) - {".o.partial"} == {"expected", "o"}
            path.unlink()
            if not killed:
                break
        assert moment > 10

    @pytest.mark.parametrize("n_parts", [1, 8])
    def test_only_the_rest_is_embedded(self, uninterrupted, files, tmp_path, monkeypatch, n_parts):
        initial_state, text, expected = uninterrupted
        path = tmp_path / "o"
        interrupt(files, text, path, n_parts, initial_state=initial_state)
        n_written = sum(len(part.sentences) for part in PartsFolder(path))
        batches = note_batches(monkeypatch)
        embed(files, text, path, initial_state, resume=True)
        assert sum(map(len, batches)) == len(text.split("\n")) - n_written > 0
        assert_same_files(path, expected)
        assert os.listdir(tmp_path) == ["o"]

    def test_nothing_is_replaced_unasked(self, files, tmp_path):
        text, path = make_text(60), tmp_path / "o"
        interrupt(files, text, path, 4)
        (tmp_path / "other").mkdir()
        other = write_random_elmo(tmp_path / "other", seed=99)
        for model, changed, arguments, message in [
            (files, text, {"resume": False}, "o.parts is there.*--resume.*--force"),
            (files, text, {"dtype": "float16"}, "dtype was 'float32' and is 'float16'"),
            (files, text, {"initial_state": "zero"}, "initial_state was 'settled' and is 'zero'"),
            (files, "x" + text, {}, "one of lines 1 to [0-9]+ has changed"),
            (files, text[:300], {}, "one of lines [0-9]+ to [0-9]+ has changed"),
            (files, "\n".join(text.split("\n")[:6]), {}, "has changed|o are not those of"),
            (other, text, {}, "model was"),
        ]:
            with pytest.raises(ValueError, match=message):
                embed(model, changed, path, **{"resume": True, **arguments})
        # None of these has harmed it, and what comes later may be another text.
        longer = text + "\nmore"
        embed(files, longer, path, resume=True)
        embed(files, longer, tmp_path / "expected")
        assert_same_files(path, tmp_path / "expected")

    def test_parts_that_can_not_be_used(self, files, tmp_path):
        lines = [f"{'word ' * 40}{number}" for number in range(3)]  # a part each
        path = tmp_path / "o"
        interrupt(files, "\n".join(lines), path, 2)
        with pytest.raises(ValueError, match="o are not those of"):
            embed(files, lines[0], path, resume=True)
        os.truncate(tmp_path / "o.parts" / "00000", 1000)
        with pytest.raises(ValueError, match="parts/00000: damaged; remove it and continue"):
            embed(files, "\n".join(lines), path, resume=True)
        embed(files, "a\n", path, overwrite=True)
        assert os.listdir(tmp_path) == ["o"]
        assert set(read_arrays(path)) == {"0", "sentence_to_index"}
        (tmp_path / "p.partial").touch()
        with pytest.raises(ValueError, match="p.partial is of an earlier version"):
            embed(files, "a\n", tmp_path / "p", resume=True)

    def test_what_is_complete_stays(self, files, tmp_path):
        text, path = make_text(20), tmp_path / "o"
        summary = embed(files, text, path, resume=True)
        n_words = len(text.replace("\u00a0", "x").split())
        assert (summary["lines"], summary["sentences"], summary["tokens"]) == (23, 23, n_words)
        before = path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()
        assert embed(files, text, path, resume=True, overwrite=True) == summary
        for other in ("x" + text, text + "\nx"):
            with pytest.raises(ValueError, match="is not the text of .*o, which has 23 lines"):
                embed(files, other, path, resume=True)
        with pytest.raises(ValueError, match="exists already"):
            embed(files, text, path, resume=True, output_format="top")
        assert (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) == before
        embed(files, text, path, resume=True, output_format="top", overwrite=True)
        assert read_arrays(path)["0"].ndim == 2

    def test_a_disk_that_is_full(self, uninterrupted, files, tmp_path):
        """At once, and while the parts are joined."""
        initial_state, text, expected = uninterrupted
        path = tmp_path / "o"

        def run(n_bytes):
            limit_file_size(n_bytes)
            with pytest.raises(OSError, match="File too large; .*make room"):
                embed(files, text, path, initial_state, resume=True)

        for n_bytes, left in ((1000, []), (os.path.getsize(expected) // 2, ["o.parts"])):
            assert fork(functools.partial(run, n_bytes)) == 0
            assert os.listdir(tmp_path) == left
        embed(files, text, path, initial_state, resume=True)
        assert_same_files(path, expected)


class TestShards:
    @pytest.mark.parametrize(
        "n_lines, arguments", [(60, {}), (10, {"forget_sentences": True, "dtype": "float16"})]
    )
    def test_the_last_one_joins_the_parts(self, files, tmp_path, n_lines, arguments):
        text, path = make_text(n_lines), tmp_path / "o"
        whole = embed(files, text, tmp_path / "whole", **arguments)
        for shard in (2, 0, 0, 1):
            assert not path.exists()
            summary = embed(files, text, path, num_shards=3, shard_index=shard, **arguments)
            assert (summary["missing_parts"] == 0) == path.exists()
        assert summary == whole == read_summary(path)
        assert_same_files(path, tmp_path / "whole")
        assert sorted(os.listdir(tmp_path)) == ["o", "whole"]
        assert embed(files, text, path, num_shards=3, shard_index=0, **arguments) == summary

    def test_at_the_same_time(self, files, tmp_path):
        text, path = make_text(40), tmp_path / "o"
        embed(files, text, tmp_path / "whole")
        children = []
        for shard in range(3):
            arguments = {"num_shards": 3, "shard_index": shard, "overwrite": True}
            run = functools.partial(embed, files, text, path, **arguments)
            children.append(fork(run, wait=False))
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
        assert_same_files(path, tmp_path / "whole")
        assert sorted(os.listdir(tmp_path)) == ["o", "whole"]

    @pytest.mark.parametrize("order", [[1, 2], [1, 2, 0]])
    def test_a_shard_that_others_overtake(self, files, tmp_path, monkeypatch, order):
        """It joins the parts that they wrote after it had passed them, unless they did."""
        text, path = make_text(30), tmp_path / "o"
        embed(files, text, tmp_path / "whole")
        write, others = PartsFolder.write, iter(order)

        def overtake(folder, number, part):
            write(folder, number, part)
            with pytest.MonkeyPatch.context() as context:
                context.setattr(PartsFolder, "write", write)
                for shard in others:
                    with suppress(BlockingIOError):  # This one is at work itself.
                        embed(files, text, path, num_shards=3, shard_index=shard)

        monkeypatch.setattr(PartsFolder, "write", overtake)
        summary = embed(files, text, path, num_shards=3, shard_index=0)
        assert summary["missing_parts"] == 0
        assert_same_files(path, tmp_path / "whole")

    def test_the_same_shard_twice_is_refused(self, files, tmp_path):
        with PartsFolder(f"{tmp_path}/o").lock("shard-0"):
            with pytest.raises(BlockingIOError, match="another process is using it.*o.parts"):
                embed(files, "a\n", tmp_path / "o", resume=True)


def note_batches(monkeypatch):
    """Return the lengths of the sentences in each batch from now on."""
    view_batch = ElmoEmbedder.view_batch
    batches = []

    def note(self, batch, *args):
        batches.append([len(sentence) for sentence in batch])
        return view_batch(self, batch, *args)

    monkeypatch.setattr(ElmoEmbedder, "view_batch", note)
    return batches


@pytest.mark.parametrize(
    "lengths, arguments, expected",
    [
        ([3, 50, 1, 7, 2, 9, 0, 3], {"batch_tokens": 20}, [[50], [9, 7], [3, 3, 2, 1, 0]]),
        ([1] * 7, {"batch_size": 3}, [[1] * 3, [1] * 3, [1]]),
        # As in AllenNLP 0.9
        (
            [n % 5 for n in range(150)],
            {"initial_state": "carried"},
            [[n % 5 for n in part] for part in (range(64), range(64, 128), range(128, 150))],
        ),
    ],
)
def test_batches(files, monkeypatch, tmp_path, lengths, arguments, expected):
    monkeypatch.setattr(corpus_embedder, "PART_WORDS", 2**15)
    batches = note_batches(monkeypatch)
    text = "\n".join(" ".join("a" * n) for n in lengths)
    embed(files, text, tmp_path / "o", **{"batch_size": None, "batch_tokens": 4096, **arguments})
    assert batches == expected


def test_common_words_are_encoded_once(files, monkeypatch, tmp_path):
    """Those of the first parts; the encoder is as it was at the end."""
    embedder = ElmoEmbedder(*files, vocab_to_cache=["vocabulary"])
    encoder = embedder.elmo_bilm.token_layer
    encoded = []
    encode = encoder._encode
    monkeypatch.setattr(
        encoder, "_encode", lambda new, *args: encoded.extend(new) or encode(new, *args)
    )
    lines = [f"common vocabulary {'word ' * 40}{number}" for number in range(12)]  # a part each
    for _ in range(2):
        n_kept = encoder.n_kept_words
        text = "\n".join([*lines, lines[0], lines[-1]])
        embedder.embed_file(io.BytesIO(text.encode()), str(tmp_path / "o"), overwrite=True)
        counts = {word: sum(word == each for each in encoded) for word in set(encoded)}
        # The word of the last part is encoded again for the part that has only that line.
        assert sorted(counts.values()) == [1] * 13 + [2]
        assert encoder.n_kept_words == n_kept
        encoded.clear()


@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_numbers_and_compression(files, tmp_path, dtype, compression):
    text = make_text(10)
    embed(files, text, tmp_path / "plain")
    embed(files, text, tmp_path / "o", dtype=dtype, compression=compression)
    with h5py.File(tmp_path / "o", "r") as file, h5py.File(tmp_path / "plain", "r") as plain:
        for i in range(13):
            dataset = file[str(i)]
            assert dataset.dtype == dtype
            assert dataset.compression == (compression if dataset.size else None)
            np.testing.assert_array_equal(dataset[...], plain[str(i)][...].astype(dtype))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"compression": "zip"}, "compression is 'zip'"),
        ({"batch_tokens": 0}, "batch_tokens is 0; it must be at least 1"),
        ({"num_shards": 2, "shard_index": 2}, "no shard 2 of 2"),
        ({"num_shards": 2, "initial_state": "carried"}, "can't be divided"),
        ({"include_sentence_indices": True, "use_sentence_keys": True}, "leave out one"),
    ],
)
def test_bad_arguments(files, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        embed(files, "a\n", tmp_path / "o", **arguments)
    assert os.listdir(tmp_path) == []


def test_a_mapping_too_long_for_hdf5(files, tmp_path, monkeypatch):
    text = "".join(f"мир {i}\n" for i in range(10))
    mapping = {f"мир {i}": str(i) for i in range(10)}
    size = len(json.dumps(mapping, ensure_ascii=False).encode("utf-8"))
    monkeypatch.setattr(layers_file, "MAX_MAPPING_BYTES", size)
    embed(files, text, tmp_path / "o")
    assert json.loads(read_arrays(tmp_path / "o")["sentence_to_index"][0]) == mapping
    monkeypatch.setattr(layers_file, "MAX_MAPPING_BYTES", size - 1)
    with pytest.raises(ValueError, match="leave it out"):
        embed(files, text, tmp_path / "p")
    # What was computed is not lost.
    assert sorted(os.listdir(tmp_path)) == ["o", "p.parts"]
    embed(files, text, tmp_path / "p", forget_sentences=True, resume=True)
    assert sorted(os.listdir(tmp_path)) == ["o", "p"]


class TestSentenceKeys:
    @pytest.mark.parametrize("compression", [None, "gzip"])
    def test_slashes_and_repetitions(self, files, tmp_path, compression):
        sentences = ["1 / 2", "1 / 3", "/ x", "y //", "a /./ b", "日本 / é", "...", "1 / 2"]
        text = "\n".join([*sentences, "w" * 80000])
        arguments = {"use_sentence_keys": True, "compression": compression}
        embed(files, text, tmp_path / "o", output_format="top", **arguments)
        embed(files, text, tmp_path / "numbers", output_format="top")
        with h5py.File(tmp_path / "o", "r") as file, h5py.File(tmp_path / "numbers", "r") as other:
            for i, sentence in enumerate(text.split("\n")):
                np.testing.assert_allclose(file[sentence][...], other[str(i)][...], atol=1e-6)
            assert "sentence_to_index" not in file
        with pytest.raises(ValueError, match="line 8: .*'1 / 2' is to HDF5 no key, the same one"):
            embed(files, text, tmp_path / "p", "carried", **arguments)

    @pytest.mark.parametrize("compression", [None, "gzip"])
    @pytest.mark.parametrize(
        "text",
        [
            *("a\n/a\n", "b/ a\nb// a\n", "a\na/b/c\n", "a/b/c\na/b\n"),
            *("a\n\nb\n", "b\n/\n", "b\n.\n", "b\na\0b\n", "b\na \ud800\n"),
        ],
    )
    def test_what_hdf5_cannot_tell_apart_or_write(self, files, tmp_path, text, compression):
        with pytest.raises(
            ValueError, match="line 2: .* is to HDF5 no key, the same one as before"
        ):
            embed(files, text, tmp_path / "o", use_sentence_keys=True, compression=compression)
        # What was computed is not lost.
        assert os.listdir(tmp_path) == ["o.parts"]
        embed(files, text, tmp_path / "o", resume=True)
        assert os.listdir(tmp_path) == ["o"]
        mapping = json.loads(read_arrays(tmp_path / "o")["sentence_to_index"][0])
        assert list(mapping) == [line.strip() for line in text.splitlines()]


def test_outputs_of_others(tmp_path):
    for name, text in (("o", "[1]"), ("p", 1)):
        with h5py.File(tmp_path / name, "w") as file:
            file.attrs["allennlp_elmo_plugin"] = text
    for name in ("o", "p", "missing"):
        assert read_summary(str(tmp_path / name)) is None
