import gzip
import io
import itertools
import json
import multiprocessing
import os
import random
import resource
import signal
import threading
import time

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.embedding import corpus_embedder, layers_file
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.embedding.layers_file import read_summary
from allennlp_elmo_plugin.embedding.parts import PartsFolder
from tests.support.layers_files import assert_same_files, make_text
from tests.support.testing import fork, read_arrays, write_random_elmo

STATES = ["carried", "settled", "zero"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=4)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(corpus_embedder, "PART_WORDS", 40)


def embed(files, text, path, initial_state="settled", **arguments):
    embedder = ElmoEmbedder(*files, initial_state=initial_state)
    return embedder.embed_file(
        io.BytesIO(text.encode("utf-8")), str(path), batch_size=4, batch_tokens=40, **arguments
    )


@pytest.fixture(scope="module", params=STATES)
def uninterrupted(request, files, tmp_path_factory):
    """Initial state, text, and the file of one run."""
    path = tmp_path_factory.mktemp("uninterrupted") / "o"
    text = make_text(150)
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
    @pytest.mark.parametrize("compression", [None, "gzip"])
    def test_killed_before_every_system_call(self, files, tmp_path, compression):
        text, path = make_text(6), tmp_path / "o"

        def run():
            embed(files, text, path, resume=True, compression=compression)

        embed(files, text, tmp_path / "expected")
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

    def test_sigkill_at_any_moment(self, uninterrupted, files, tmp_path):
        initial_state, text, expected = uninterrupted
        path = tmp_path / "o"

        def run():
            embed(files, text, path, initial_state, resume=True)

        start = time.monotonic()
        run()
        duration = time.monotonic() - start
        path.unlink()
        for _ in range(3):
            process = multiprocessing.get_context("fork").Process(target=run)
            process.start()
            process.join(duration * random.random())
            process.kill()
            process.join()
        run()
        assert_same_files(path, expected)
        assert os.listdir(tmp_path) == ["o"]

    @pytest.mark.parametrize("n_parts", [1, 4])
    def test_only_the_rest_is_embedded(self, uninterrupted, files, tmp_path, monkeypatch, n_parts):
        initial_state, text, expected = uninterrupted
        path = tmp_path / "o"
        interrupt(files, text, path, n_parts, initial_state=initial_state)
        n_written = sum(len(part.sentences) for part in PartsFolder(f"{path}.parts"))
        view_batch = ElmoEmbedder.view_batch
        n_sentences = []

        def count(self, batch, *args):
            n_sentences.append(len(batch))
            return view_batch(self, batch, *args)

        monkeypatch.setattr(ElmoEmbedder, "view_batch", count)
        embed(files, text, path, initial_state, resume=True)
        assert sum(n_sentences) == len(text.split("\n")) - n_written > 0
        assert_same_files(path, expected)

    def test_nothing_is_replaced_unasked(self, files, tmp_path):
        text, path = make_text(100), tmp_path / "o"
        interrupt(files, text, path, 4)
        (tmp_path / "other").mkdir()
        other = write_random_elmo(tmp_path / "other", seed=99)
        for model, changed, arguments, message in [
            (files, text, {"resume": False}, "o.parts is there.*--resume.*--force"),
            (files, text, {"dtype": "float16"}, "dtype was 'float32' and is 'float16'"),
            (files, text, {"initial_state": "zero"}, "initial_state was 'settled' and is 'zero'"),
            (files, "x" + text, {}, "one of lines 1 to [0-9]+ has changed"),
            (files, text[:500], {}, "one of lines [0-9]+ to [0-9]+ has changed"),
            (other, text, {}, "model was"),
        ]:
            with pytest.raises(ValueError, match=message):
                embed(model, changed, path, **{"resume": True, **arguments})
        # None of these has harmed it, and what comes later may be another text.
        longer = text + "\nmore"
        embed(files, longer, path, resume=True)
        embed(files, longer, tmp_path / "expected")
        assert_same_files(path, tmp_path / "expected")

    def test_a_text_that_has_become_shorter(self, files, tmp_path):
        lines = [f"{'word ' * 40}{number}" for number in range(3)]  # a part each
        interrupt(files, "\n".join(lines), tmp_path / "o", 2)
        with pytest.raises(ValueError, match="o are not those of"):
            embed(files, lines[0], tmp_path / "o", resume=True)

    def test_force_starts_anew(self, files, tmp_path):
        interrupt(files, make_text(100), tmp_path / "o", 4)
        embed(files, "a\n", tmp_path / "o", overwrite=True)
        assert sorted(os.listdir(tmp_path)) == ["o"]
        assert set(read_arrays(tmp_path / "o")) == {"0", "sentence_to_index"}

    def test_what_is_complete_stays(self, files, tmp_path):
        text, path = make_text(40), tmp_path / "o"
        summary = embed(files, text, path, resume=True)
        before = path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()
        assert embed(files, text, path, resume=True, overwrite=True) == summary
        for other in ("x" + text, text + "\nx"):
            with pytest.raises(ValueError, match="is not the text of .*o, which has 43 lines"):
                embed(files, other, path, resume=True)
        with pytest.raises(ValueError, match="exists already"):
            embed(files, text, path, resume=True, output_format="top")
        assert (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) == before
        embed(files, text, path, resume=True, output_format="top", overwrite=True)
        assert read_arrays(path)["0"].ndim == 2

    def test_two_processes(self, files, tmp_path):
        path = tmp_path / "o"
        with PartsFolder(f"{path}.parts").lock("shard-0"):
            with pytest.raises(ValueError, match="o.parts: another process is using it"):
                embed(files, "a\n", path, resume=True)

    def test_a_disk_that_is_full(self, uninterrupted, files, tmp_path):
        """At once, among the parts, and while they are joined."""
        initial_state, text, expected = uninterrupted
        path = tmp_path / "o"

        def run(n_bytes):
            resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
            with pytest.raises(OSError, match="make room"):
                embed(files, text, path, initial_state, resume=True)

        size = os.path.getsize(expected)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then write() fails
        try:
            assert fork(lambda: run(1000)) == 0
            assert os.listdir(tmp_path) == []
            assert fork(lambda: run(size // 2)) == 0
            assert os.listdir(tmp_path) == ["o.parts"]
        finally:
            signal.signal(signal.SIGXFSZ, handler)
        embed(files, text, path, initial_state, resume=True)
        assert_same_files(path, expected)

    def test_what_an_earlier_version_left(self, files, tmp_path):
        (tmp_path / "o.partial").touch()
        with pytest.raises(ValueError, match="o.partial is of a run of an earlier version"):
            embed(files, "a\n", tmp_path / "o", resume=True)


class TestShards:
    @pytest.mark.parametrize("n_lines", [100, 20])
    @pytest.mark.parametrize("arguments", [{}, {"forget_sentences": True, "dtype": "float16"}])
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

    def test_a_shard_that_waited_for_the_one_that_joins(self, tmp_path):
        folder = PartsFolder(str(tmp_path / "o.parts"))
        waited = threading.Event()

        def wait():
            with folder.lock("join", wait=True):
                waited.set()

        with folder.lock("join"):
            thread = threading.Thread(target=wait)
            thread.start()
            time.sleep(0.2)
            folder.remove()
        thread.join(10)
        assert waited.is_set()

    def test_at_the_same_time(self, files, tmp_path):
        text, path = make_text(60), tmp_path / "o"
        embed(files, text, tmp_path / "whole")
        processes = [
            multiprocessing.get_context("fork").Process(
                target=embed,
                args=(files, text, path),
                kwargs={"num_shards": 3, "shard_index": shard, "overwrite": True},
            )
            for shard in range(3)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
            assert process.exitcode == 0
        assert_same_files(path, tmp_path / "whole")
        assert sorted(os.listdir(tmp_path)) == ["o", "whole"]


class TestBatches:
    def lengths(self, files, text, monkeypatch, tmp_path, **arguments):
        view_batch = ElmoEmbedder.view_batch
        batches = []

        def note(self, batch, *args):
            batches.append([len(sentence) for sentence in batch])
            return view_batch(self, batch, *args)

        monkeypatch.setattr(ElmoEmbedder, "view_batch", note)
        monkeypatch.setattr(corpus_embedder, "PART_WORDS", 2**15)
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
            ({"batch_tokens": 0}, "batch_tokens is 0"),
            ({"num_shards": 2, "shard_index": 2}, "no shard 2 of 2"),
            ({"num_shards": 2, "shard_index": -1}, "no shard -1 of 2"),
            ({"num_shards": 0}, "num_shards is 0; it must be at least 1"),
            ({"num_shards": 2, "initial_state": "carried"}, "can't be divided"),
        ],
    )
    def test_bad_arguments(self, files, tmp_path, arguments, message):
        embedder = ElmoEmbedder(*files, initial_state=arguments.pop("initial_state", "settled"))
        with pytest.raises(ValueError, match=message):
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

    def test_a_mapping_too_long_for_hdf5(self, files, tmp_path, monkeypatch):
        text = "".join(f"мир {i}\n" for i in range(10))
        mapping = json.dumps({f"мир {i}": str(i) for i in range(10)}, ensure_ascii=False)
        (tmp_path / "i").write_text(text, encoding="utf-8")
        size = len(mapping.encode("utf-8"))
        embedder = ElmoEmbedder(*files)
        for name, limit, left in [("o", size, ["i", "o"]), ("p", size - 1, ["i", "o", "p.parts"])]:
            monkeypatch.setattr(layers_file, "MAX_MAPPING_BYTES", limit)
            with open(tmp_path / "i", "rb") as file:
                if name == "o":
                    embedder.embed_file(file, str(tmp_path / name))
                    continue
                with pytest.raises(ValueError, match="leave it out"):
                    embedder.embed_file(file, str(tmp_path / name))
            assert sorted(os.listdir(tmp_path)) == left
        # What was computed is not lost.
        with open(tmp_path / "i", "rb") as file:
            embedder.embed_file(file, str(tmp_path / "p"), forget_sentences=True, resume=True)
        # A text that is as long itself is refused at once.
        monkeypatch.setattr(layers_file, "MAX_MAPPING_BYTES", len(text.encode("utf-8")) - 1)
        with open(tmp_path / "i", "rb") as file:
            with pytest.raises(ValueError, match="leave it out"):
                embedder.embed_file(file, str(tmp_path / "q"))
        assert sorted(os.listdir(tmp_path)) == ["i", "o", "p"]

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
            ("a\n/a\n", "line 2: .*'/a' is to HDF5 the same key"),
            ("b/ a\nb// a\n", "line 2: .*'b// a' is to HDF5 the same"),
            ("b// a\nb/ a\n", "line 2: .*'b/ a' is to HDF5 the same"),
            ("a\nx\na/b/c\n", "line 3: .*'a/b/c' is to HDF5"),
            ("a/b/c\nx\na/b\n", "line 3: .*'a/b' is to HDF5"),
        ],
    )
    def test_what_hdf5_cannot_tell_apart(self, files, tmp_path, text, message):
        with pytest.raises(ValueError, match=message):
            embed(files, text, tmp_path / "o", use_sentence_keys=True)
        assert os.listdir(tmp_path) == ["o.parts"]
        # What was computed is not lost.
        embed(files, text, tmp_path / "o", resume=True)
        assert os.listdir(tmp_path) == ["o"]

    def test_a_sentence_that_occurs_again(self, files, tmp_path):
        embed(files, "a\nb\na\n", tmp_path / "o", use_sentence_keys=True)
        assert set(read_arrays(tmp_path / "o")) == {"a", "b"}
        with pytest.raises(ValueError, match="line 3: the sentence 'a' is to HDF5 the same"):
            embed(files, "a\nb\na\n", tmp_path / "p", "carried", use_sentence_keys=True)

    def test_half_a_surrogate_pair(self, files, tmp_path):
        embedder = ElmoEmbedder(*files, initial_state="settled")
        text = "a \ud800\n"
        with pytest.raises(ValueError, match="line 1: .*characters that it"):
            embedder.embed_file(io.StringIO(text), str(tmp_path / "o"), use_sentence_keys=True)
        embedder.embed_file(io.StringIO(text), str(tmp_path / "o"))
        with h5py.File(tmp_path / "o", "r") as file:
            assert json.loads(file["sentence_to_index"][0]) == {"a \ud800": "0"}
            assert file["0"].shape[1] == 2
