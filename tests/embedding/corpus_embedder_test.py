import gzip
import io
import json
import multiprocessing
import os
import random
import resource
import signal
import time

import h5py
import numpy as np
import pytest
import torch
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.embedding import corpus_embedder, layers_file
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.embedding.layers_file import read_summary
from tests.support.full_disk import Disk
from tests.support.layers_files import assert_same_files, make_text
from tests.support.testing import read_arrays, write_random_elmo

STATES = ["carried", "settled", "zero"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=4)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(corpus_embedder, "SHARD_LINES", 16)


def embed(files, text, path, initial_state="settled", **arguments):
    embedder = ElmoEmbedder(*files, initial_state=initial_state)
    return embedder.embed_file(
        io.BytesIO(text.encode("utf-8")), str(path), batch_size=4, batch_tokens=40, **arguments
    )


def file_identity(path):
    """Changes with every write to the file, unlike the whole of `stat`, also with every reading."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, path.read_bytes()


@pytest.fixture(scope="module", params=STATES)
def uninterrupted(request, files, tmp_path_factory):
    """Initial state, text, and the file of one run."""
    path = tmp_path_factory.mktemp("uninterrupted") / "o"
    text = make_text(150)
    with pytest.MonkeyPatch.context() as context:
        context.setattr(corpus_embedder, "SHARD_LINES", 16)
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


class TestResume:
    @pytest.fixture(autouse=True)
    def checkpoint_at_every_pool(self, monkeypatch):
        monkeypatch.setattr(corpus_embedder, "_CHECKPOINT_SECONDS", 0)

    def run_until_killed(self, seconds, *args, **kwargs):
        """A process that gets SIGKILL after so many seconds, unless it has finished."""
        process = multiprocessing.get_context("fork").Process(
            target=embed, args=args, kwargs={"resume": True, **kwargs}
        )
        process.start()
        process.join(seconds)
        process.kill()
        process.join()

    @pytest.mark.parametrize("seed, compression", [(0, None), (1, None), (2, "gzip")])
    def test_sigkill_at_any_moment(self, uninterrupted, files, tmp_path, seed, compression):
        initial_state, text, expected = uninterrupted
        rng = random.Random(seed)

        def arguments(name):
            return (files, text, tmp_path / name, initial_state)

        start = time.monotonic()
        self.run_until_killed(600, *arguments("whole"), compression=compression)
        duration = time.monotonic() - start
        assert_same_files(tmp_path / "whole", expected)
        for _ in range(3):
            self.run_until_killed(duration * rng.random(), *arguments("o"), compression=compression)
            if (tmp_path / "o").exists():  # This run was faster than the whole one.
                assert_same_files(tmp_path / "o", expected)
                (tmp_path / "o").unlink()
        summary = embed(*arguments("o"), resume=True, compression=compression)
        assert summary["sentences"] == summary["lines"] == len(text.split("\n"))
        assert_same_files(tmp_path / "o", expected)
        assert sorted(os.listdir(tmp_path)) == ["o", "whole"]

    def interrupt(self, monkeypatch, files, text, path, n_pools=5, **arguments):
        """A run that ends after so many pools."""
        write = corpus_embedder.CorpusEmbedder._write
        count = []

        def die(self, *args):
            count.append(0)
            if len(count) > n_pools:
                raise Killed
            write(self, *args)

        with monkeypatch.context() as context:
            context.setattr(corpus_embedder.CorpusEmbedder, "_write", die)
            with pytest.raises(Killed):
                embed(files, text, path, **arguments)

    def test_only_the_rest_is_embedded(self, uninterrupted, files, tmp_path, monkeypatch):
        initial_state, text, expected = uninterrupted
        self.interrupt(monkeypatch, files, text, tmp_path / "o", initial_state=initial_state)
        embed_batch = ElmoEmbedder.embed_batch
        n_sentences = []

        def count(self, batch, *args):
            n_sentences.append(len(batch))
            return embed_batch(self, batch, *args)

        monkeypatch.setattr(ElmoEmbedder, "embed_batch", count)
        embed(files, text, tmp_path / "o", initial_state, resume=True)
        assert sum(n_sentences) == len(text.split("\n")) - 5 * 16
        assert_same_files(tmp_path / "o", expected)

    def test_nothing_is_replaced_unasked(self, files, tmp_path, monkeypatch):
        text, path = make_text(100), tmp_path / "o"
        self.interrupt(monkeypatch, files, text, path)
        with pytest.raises(ConfigurationError, match="o.partial is there.*--resume.*--force"):
            embed(files, text, path)
        with pytest.raises(ConfigurationError, match="dtype was 'float32' and is 'float16'"):
            embed(files, text, path, resume=True, dtype="float16")
        with pytest.raises(ConfigurationError, match="initial_state was 'settled' and is 'zero'"):
            embed(files, text, path, "zero", resume=True)
        with pytest.raises(ConfigurationError, match="one of its first 80 lines has changed"):
            embed(files, "x" + text, path, resume=True)
        with pytest.raises(ConfigurationError, match="one of its first 80 lines has changed"):
            embed(files, text[:200], path, resume=True)
        # None of these has harmed it, and what comes later may be another text.
        longer = text + "\nmore"
        embed(files, longer, path, resume=True)
        embed(files, longer, tmp_path / "expected")
        assert_same_files(path, tmp_path / "expected")

    def test_other_weights_are_refused(self, files, tmp_path, monkeypatch):
        (tmp_path / "other").mkdir()
        other = write_random_elmo(tmp_path / "other", seed=99)
        self.interrupt(monkeypatch, files, make_text(100), tmp_path / "o")
        with pytest.raises(ConfigurationError, match="model was"):
            embed(other, make_text(100), tmp_path / "o", resume=True)

    def test_force_starts_anew(self, files, tmp_path, monkeypatch):
        self.interrupt(monkeypatch, files, make_text(100), tmp_path / "o")
        embed(files, "a\n", tmp_path / "o", overwrite=True)
        assert sorted(os.listdir(tmp_path)) == ["o"]
        assert set(read_arrays(tmp_path / "o")) == {"0", "sentence_to_index"}

    def test_what_is_complete_stays(self, files, tmp_path):
        text, path = make_text(40), tmp_path / "o"
        summary = embed(files, text, path, resume=True)
        before = file_identity(path)
        assert embed(files, text, path, resume=True) == summary
        assert file_identity(path) == before
        with pytest.raises(ConfigurationError, match="has changed"):
            embed(files, "x" + text, path, resume=True)
        with pytest.raises(ConfigurationError, match="exists already"):
            embed(files, text, path, resume=True, output_format="top")
        assert file_identity(path) == before

    def test_two_processes(self, files, tmp_path):
        path = tmp_path / "o"
        embedder = ElmoEmbedder(*files)
        with corpus_embedder.LayersFile(str(path)):
            with pytest.raises(ConfigurationError, match="written by another process"):
                embedder.embed_file(io.BytesIO(b"a\n"), str(path), resume=True)

    def test_full_disk(self, uninterrupted, files, tmp_path):
        initial_state, text, expected = uninterrupted
        path = tmp_path / "o"

        def limited(queue, n_bytes):
            resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
            try:
                embed(files, text, path, initial_state, resume=True)
            except OSError as error:
                queue.put(str(error))

        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then write() fails
        try:
            size = os.path.getsize(expected)
            for n_bytes in (size // 3, size // 2):
                context = multiprocessing.get_context("fork")
                queue = context.Queue()
                process = context.Process(target=limited, args=(queue, n_bytes))
                process.start()
                message = queue.get(timeout=300)
                process.join()
                assert process.exitcode == 0
                assert "o.partial" in message and "continue with --resume" in message
                assert not path.exists()
        finally:
            signal.signal(signal.SIGXFSZ, before)
        embed(files, text, path, initial_state, resume=True)
        assert_same_files(path, expected)


def test_a_disk_that_is_full_at_once_leaves_nothing(files, tmp_path, monkeypatch):
    with monkeypatch.context() as context:
        Disk(context, 20000, OSError(28, "No space left on device"))
        with pytest.raises(OSError, match="No space left on device; nothing is kept"):
            embed(files, make_text(100), tmp_path / "o")
    assert os.listdir(tmp_path) == []


class TestBatches:
    def lengths(self, files, text, monkeypatch, tmp_path, **arguments):
        embed_batch = ElmoEmbedder.embed_batch
        batches = []

        def note(self, batch, *args):
            batches.append([len(sentence) for sentence in batch])
            return embed_batch(self, batch, *args)

        monkeypatch.setattr(ElmoEmbedder, "embed_batch", note)
        embedder = ElmoEmbedder(*files, initial_state=arguments.pop("initial_state", "settled"))
        embedder.embed_file(io.BytesIO(text.encode("utf-8")), str(tmp_path / "o"), **arguments)
        return batches

    def test_sorted_by_length_within_the_budget(self, files, monkeypatch, tmp_path):
        text = "\n".join(" ".join("a" * n) for n in [3, 50, 1, 7, 2, 9, 0, 3])
        batches = self.lengths(files, text, monkeypatch, tmp_path, batch_tokens=20, batch_size=None)
        assert batches == [[50], [9, 7], [3, 3, 2, 1, 0]]

    def test_batch_size_is_a_limit(self, files, monkeypatch, tmp_path):
        batches = self.lengths(files, "a\n" * 7, monkeypatch, tmp_path, batch_size=3)
        assert batches == [[1, 1, 1], [1, 1, 1], [1]]

    def test_carried_as_in_allennlp_0_9(self, files, monkeypatch, tmp_path):
        text = "\n".join(" ".join("a" * (n % 5)) for n in range(150))
        batches = self.lengths(
            files, text, monkeypatch, tmp_path, initial_state="carried", batch_size=None
        )
        assert [len(batch) for batch in batches] == [64, 64, 22]
        assert [n for batch in batches for n in batch] == [n % 5 for n in range(150)]


@pytest.mark.parametrize("initial_state", STATES)
def test_sentences_of_any_length(files, initial_state):
    rng = random.Random(0)
    batch = [[rng.choice("abcdef") for _ in range(n)] for n in (3, 40, 0, 25)]
    whole, cut = (ElmoEmbedder(*files, initial_state=initial_state) for _ in range(2))
    cut._segment_steps = 7
    for _ in range(2):  # the second time from carried states
        for output_format in ("all", "average", "top"):
            expected = whole.embed_batch(batch, output_format)
            for array, other in zip(cut.embed_batch(batch, output_format), expected):
                assert array.shape == other.shape and array.dtype == other.dtype
                np.testing.assert_allclose(array, other, atol=1e-5)


class TestOutOfMemory:
    """A GPU that takes so many rows and steps at once."""

    @pytest.fixture
    def small_gpu(self, monkeypatch):
        def limit(embedder, max_tokens):
            bilm = embedder.elmo_bilm
            bilm.settled_state()
            run = bilm.run

            def refuse(vectors, *args, **kwargs):
                output = run(vectors, *args, **kwargs)  # the state has changed
                if len(vectors) > max_tokens:
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
                return output

            monkeypatch.setattr(bilm, "run", refuse)

        return limit

    @pytest.mark.parametrize("initial_state", STATES)
    @pytest.mark.parametrize("max_tokens", [60, 13])
    def test_batches_are_halved(self, files, small_gpu, initial_state, max_tokens):
        rng = random.Random(0)
        lengths = (3, 40, 0, 25, 8, 9)
        batch = [[rng.choice("abcdef") for _ in range(n)] for n in lengths]
        whole, small = (ElmoEmbedder(*files, initial_state=initial_state) for _ in range(2))
        small_gpu(small, max_tokens)
        for _ in range(2):
            expected = whole.embed_batch(batch)
            for array, other in zip(small.embed_batch(batch), expected):
                np.testing.assert_allclose(array, other, atol=1e-5)

    def test_later_batches_are_no_larger(self, files, small_gpu, monkeypatch):
        embedder = ElmoEmbedder(*files, initial_state="zero")
        small_gpu(embedder, 30)
        embedder.embed_batch([["a"] * 8] * 4)
        run = embedder.elmo_bilm.run_sentences
        batches = []
        monkeypatch.setattr(
            embedder.elmo_bilm,
            "run_sentences",
            lambda batch, *args: batches.append(len(batch)) or run(batch, *args),
        )
        embedder.embed_batch([["a"] * 8] * 4)
        assert batches == [2, 2]

    def test_a_gpu_that_takes_nothing(self, files, small_gpu):
        embedder = ElmoEmbedder(*files, initial_state="zero")
        small_gpu(embedder, 0)
        with pytest.raises(RuntimeError, match="CUDA out of memory"):
            embedder.embed_batch([["a"] * 8] * 4)

    def test_other_errors_are_errors(self, files, monkeypatch):
        embedder = ElmoEmbedder(*files)

        def fail(*_, **__):
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

        monkeypatch.setattr(embedder.elmo_bilm, "run", fail)
        with pytest.raises(RuntimeError, match="mat1"):
            embedder.embed_batch([["a"]])


class TestFormats:
    @pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_numbers_and_compression(self, files, tmp_path, dtype, compression):
        text = make_text(20)
        embed(files, text, tmp_path / "plain")
        embed(files, text, tmp_path / "o", dtype=dtype, compression=compression)
        with h5py.File(tmp_path / "o", "r") as file, h5py.File(tmp_path / "plain", "r") as plain:
            for i in range(23):
                dataset = file[str(i)]
                assert dataset.dtype == dtype
                assert dataset.compression == (compression if dataset.size else None)
                expected = plain[str(i)][...].astype(dtype)
                np.testing.assert_array_equal(dataset[...], expected)

    @pytest.mark.parametrize(
        "arguments, message",
        [
            ({"dtype": "int8"}, "dtype is 'int8'"),
            ({"compression": "zip"}, "compression is 'zip'"),
            ({"batch_tokens": 0}, "0 tokens"),
            ({"num_shards": 2, "shard_index": 2}, "no shard 2 of 2"),
            ({"num_shards": 2, "shard_index": -1}, "no shard -1 of 2"),
            ({"num_shards": 0}, "there are 0 shards; there must be at least 1"),
            ({"num_shards": 2, "initial_state": "carried"}, "can't be divided"),
        ],
    )
    def test_bad_arguments(self, files, tmp_path, arguments, message):
        embedder = ElmoEmbedder(*files, initial_state=arguments.pop("initial_state", "settled"))
        with pytest.raises(ConfigurationError, match=message):
            embedder.embed_file(io.BytesIO(b"a\n"), str(tmp_path / "o"), **arguments)
        assert os.listdir(tmp_path) == []

    def test_gzip_input(self, files, tmp_path):
        text = make_text(20)
        embed(files, text, tmp_path / "plain")
        (tmp_path / "i").write_bytes(gzip.compress(text.encode("utf-8")))
        with open(tmp_path / "i", "rb") as file:
            ElmoEmbedder(*files, initial_state="settled").embed_file(
                file, str(tmp_path / "o"), batch_size=4, batch_tokens=40
            )
        assert_same_files(tmp_path / "o", tmp_path / "plain")

    @pytest.mark.parametrize("module", [corpus_embedder, layers_file])
    def test_a_mapping_too_long_for_hdf5(self, module, files, tmp_path, monkeypatch):
        text = "word\n" * 10
        mapping = ", ".join(f'"word": "{i}"' for i in range(10))
        n_bytes = {corpus_embedder: len(text), layers_file: len(f"{{{mapping}}}")}[module]
        (tmp_path / "i").write_text(text, encoding="utf-8")
        for limit in (n_bytes, n_bytes - 1):
            monkeypatch.setattr(module, "MAX_MAPPING_BYTES", limit)
            embedder = ElmoEmbedder(*files, initial_state="settled")
            with open(tmp_path / "i", "rb") as file:
                if limit == n_bytes:
                    embedder.embed_file(file, str(tmp_path / "o"))
                    continue
                with pytest.raises(ConfigurationError, match="leave it out"):
                    embedder.embed_file(file, str(tmp_path / "p"))
                file.seek(0)
                embedder.embed_file(file, str(tmp_path / "p"), forget_sentences=True)

    def test_summary(self, files, tmp_path):
        summary = embed(files, "a b\n\na b\n", tmp_path / "o")
        assert (summary["lines"], summary["sentences"], summary["tokens"]) == (3, 3, 4)
        assert read_summary(str(tmp_path / "o")) == summary


class TestSentenceKeys:
    def test_slashes_and_repetitions(self, files, tmp_path):
        sentences = ["1 / 2", "1 / 3", "/ x", "y //", "a /./ b", "日本 / é", "w" * 80000, "1 / 2"]
        sentences = [sentence.strip() for sentence in sentences]
        text = "\n".join(sentences)
        embed(files, text, tmp_path / "o", use_sentence_keys=True, output_format="top")
        embed(files, text, tmp_path / "numbers", output_format="top")
        with h5py.File(tmp_path / "o", "r") as file, h5py.File(tmp_path / "numbers", "r") as other:
            for i, sentence in enumerate(sentences):
                np.testing.assert_allclose(file[sentence][...], other[str(i)][...], atol=1e-6)

    @pytest.mark.parametrize(
        "text, message",
        [
            ("a\n/a\n", "line 2: .*'/a' is the same key as 'a'"),
            ("b/ a\nb// a\n", "line 2: .*'b// a' is the same key as 'b/ a'"),
            ("b// a\nb/ a\n", "line 2: .*'b/ a' is the same key as 'b// a'"),
            ("a\nx\na/b/c\n", "line 3: .*but 'a' is a sentence"),
            ("a/b/c\nx\na/b\n", "line 3: a sentence before begins with 'a/b'"),
            ("//\n", "line 1: .*the root"),
        ],
    )
    def test_what_hdf5_cannot_tell_apart(self, files, tmp_path, text, message):
        with pytest.raises(ConfigurationError, match=message):
            embed(files, text, tmp_path / "o", use_sentence_keys=True)
        assert os.listdir(tmp_path) == []

    def test_half_a_surrogate_pair(self, files, tmp_path):
        embedder = ElmoEmbedder(*files, initial_state="settled")
        text = "a \ud800\n"
        with pytest.raises(ConfigurationError, match="line 1: .*surrogate"):
            embedder.embed_file(io.StringIO(text), str(tmp_path / "o"), use_sentence_keys=True)
        embedder.embed_file(io.StringIO(text), str(tmp_path / "o"))
        with h5py.File(tmp_path / "o", "r") as file:
            assert json.loads(file["sentence_to_index"][0]) == {"a \ud800": "0"}
            assert file["0"].shape[1] == 2
