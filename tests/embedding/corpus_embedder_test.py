"""Files of layers: what is in them, killed and resumed runs, shards, batches and keys."""

import io
import json
import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Event
from unittest.mock import DEFAULT, patch

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.embedding import corpus_embedder, layers_file
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.embedding.parts import PartsFolder
from tests.support.layers_files import assert_same_files, make_text
from tests.support.testing import fork, limit_file_size, read_arrays, write_random_elmo


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


@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
@pytest.mark.parametrize(
    "output_format, dtype, state, select",
    [
        ("all", "float32", "carried", lambda layers: layers),
        ("top", "float16", "settled", lambda layers: layers[2]),
        ("average", "float32", "zero", lambda layers: layers.mean(0)),
    ],
)
def test_every_line_has_layers(
    files, tmp_path, output_format, dtype, state, select, compression, caplog
):
    odd = {"A b .\r": ["A", "b", "."], "": [], "\tA\u00a0b  c\x1cd ": ["A\u00a0b", "c\x1cd"]}
    lines = [*odd, "  ", *make_text(40).split("\n")]
    sentences = [*odd.values(), [], *(line.split(" ") if line else [] for line in lines[4:])]
    form = {"output_format": output_format, "dtype": dtype, "compression": compression}
    path = tmp_path / "o"
    embed(files, "\n".join(lines), path, state, include_sentence_indices=True, **form)
    expected = ElmoEmbedder(*files, initial_state=state).embed_sentences(sentences, 4)
    with h5py.File(path, "r") as file:
        assert len(file) == len(lines) + 2
        for i, layers in enumerate(expected):
            stored = file[str(i)]
            assert stored.dtype == dtype and not stored.id.get_create_plist().get_obj_track_times()
            assert stored.compression == (compression if stored.size else None)
            tolerance = {"rtol": np.finfo(dtype).eps, "atol": 1e-5}
            np.testing.assert_allclose(stored[...], select(layers), **tolerance, err_msg=str(i))
        # The last of the same sentences, as AllenNLP 0.9 has it
        keys = {line.strip("\t\r "): str(i) for i, line in enumerate(lines)}
        for name in ("sentence_to_index", "sentence_indices"):
            assert file[name].shape == (1,) and json.loads(file[name][0]) == keys
            assert h5py.check_string_dtype(file[name].dtype).length is None
    embed(files, "", tmp_path / "nothing", forget_sentences=True)
    assert caplog.messages[-1:] == ["the input: is empty, so the output has no sentences"]
    assert read_arrays(tmp_path / "nothing") == {}


@pytest.mark.parametrize("pooling, output_format", [("mean", "average"), ("max", "all")])
def test_a_row_for_each_sentence(files, tmp_path, pooling, output_format):
    text, path = make_text(20), tmp_path / "o"
    form = {"output_format": output_format, "pooling": pooling, "compression": "gzip"}
    interrupt(files, text, path, 2, **form)
    with pytest.raises(ValueError, match="pooling was '.*' and is None"):
        embed(files, text, path, resume=True, output_format=output_format)
    embed(files, text, path, resume=True, **form)
    lines = text.split("\n")
    with h5py.File(path, "r") as file:
        assert set(file) == {"vectors", "sentence_to_index"} and file["vectors"].dtype == "float32"
        expected = ElmoEmbedder(*files).encode(lines, pooling, output_format)
        np.testing.assert_allclose(file["vectors"][:], expected, atol=1e-5)
        keys = {line.strip("\t\r "): str(i) for i, line in enumerate(lines)}
        assert json.loads(file["sentence_to_index"][0]) == keys
    embed(files, "", tmp_path / "nothing", forget_sentences=True, **form)
    assert read_arrays(tmp_path / "nothing")["vectors"].shape == (0, *expected.shape[1:])


def interrupt(files, text, path, n_parts, **arguments):
    """A run that ends after so many parts."""
    effects = [*[DEFAULT] * n_parts, KeyboardInterrupt]
    with patch.object(torch, "save", wraps=torch.save, side_effect=effects):
        with pytest.raises(KeyboardInterrupt):
            embed(files, text, path, **arguments)


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("initial_state, compression", [("settled", None), ("carried", "gzip")])
def test_killed_before_every_system_call(files, tmp_path, initial_state, compression):
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


@pytest.mark.parametrize("n_parts, initial_state", [(1, "settled"), (8, "zero"), (8, "carried")])
def test_only_the_rest_is_embedded(files, tmp_path, monkeypatch, n_parts, initial_state):
    text, path = make_text(70), tmp_path / "o"
    interrupt(files, text, path, n_parts, initial_state=initial_state)
    n_written = sum(len(part.sentences) for part in PartsFolder(path))
    batches = note_batches(monkeypatch)
    embed(files, text, path, initial_state, resume=True, overwrite=n_parts > 1)
    assert sum(map(len, batches)) == len(text.split("\n")) - n_written > 0
    assert os.listdir(tmp_path) == ["o"]
    embed(files, text, tmp_path / "expected", initial_state)
    assert_same_files(path, tmp_path / "expected")


def test_only_the_same_run_is_continued(files, tmp_path):
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
        (other, text, {}, "model was"),
    ]:
        with pytest.raises(ValueError, match=message):
            embed(model, changed, path, **{"resume": True, **arguments})
    # None of these has harmed it, and what comes later may be another text.
    longer = text + "\nmore"
    embed(files, longer, path, resume=True)
    embed(files, longer, tmp_path / "expected")
    assert_same_files(path, tmp_path / "expected")


def test_parts_of_another_text(files, tmp_path):
    lines = [f"{'word ' * 40}{number}" for number in range(3)]  # a part each
    path = tmp_path / "o"
    interrupt(files, "\n".join(lines), path, 2)
    with pytest.raises(ValueError, match="o are not those of"):
        embed(files, lines[0], path, resume=True)
    embed(files, "a\n", path, overwrite=True)
    assert os.listdir(tmp_path) == ["o"]
    assert set(read_arrays(path)) == {"0", "sentence_to_index"}


@pytest.mark.parametrize(
    "initial_state, form",
    [
        ("settled", {"output_format": "all"}),
        ("carried", {"output_format": "top", "dtype": "float16"}),
        ("zero", {"output_format": "average", "pooling": "mean"}),
    ],
)
def test_a_damaged_part_is_noticed(files, tmp_path, initial_state, form):
    """Also one whose size is right; without it, the run continues."""
    text, path, part = make_text(20), tmp_path / "o", tmp_path / "o.parts" / "00000"
    arguments = {"initial_state": initial_state, **form}
    embed(files, text, tmp_path / "expected", **arguments)
    interrupt(files, text, path, 2, **arguments)
    whole = part.read_bytes()
    n_row = 16 * (2 if "dtype" in form else 4)  # bytes

    def flip(place, bit=1):
        return whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :]

    spoilt = [flip(place, 1 << place % 8) for place in range(0, len(whole), len(whole) // 25)]
    spoilt += [flip(-place) for place in range(1, 14)]  # what is said of the rest
    spoilt += [b"", whole[:-1], whole[:1000], whole[n_row:], whole + b"\0", whole[:n_row] + whole]
    spoilt += [
        whole[n_row : 2 * n_row] + whole[:n_row] + whole[2 * n_row :]
    ]  # two rows change places
    for content in spoilt:
        part.write_bytes(content)
        with pytest.raises(ValueError, match="parts.00000: damaged; remove it and continue"):
            embed(files, text, path, resume=True, **arguments)
        assert not path.exists()
    part.unlink()
    embed(files, text, path, resume=True, **arguments)
    assert_same_files(path, tmp_path / "expected")


def test_what_is_complete_stays(files, tmp_path):
    text, path = make_text(20), tmp_path / "o"
    summary = embed(files, text, path, resume=True)
    n_words = len(text.replace("\u00a0", "x").split())
    assert (summary["lines"], summary["sentences"], summary["tokens"]) == (23, 23, n_words)
    before = path.stat().st_ino, path.stat().st_mtime_ns
    assert embed(files, text, path, resume=True, overwrite=True) == summary
    for other in ("x" + text, text + "\nx"):
        with pytest.raises(ValueError, match="is not the text of .*o, which has 23 lines"):
            embed(files, other, path, resume=True)
    with pytest.raises(ValueError, match="exists already"):
        embed(files, text, path, resume=True, output_format="top")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == before
    embed(files, text, path, resume=True, output_format="top", overwrite=True)
    assert read_arrays(path)["0"].ndim == 2


def test_a_disk_that_is_full(files, tmp_path):
    """At once, and while the parts are joined."""
    text, path = make_text(70), tmp_path / "o"
    embed(files, text, tmp_path / "expected")

    def run(n_bytes):
        limit_file_size(n_bytes)
        with pytest.raises(OSError, match="File too large; .*make room"):
            embed(files, text, path, resume=True)

    half = os.path.getsize(tmp_path / "expected") // 2
    for n_bytes, left in ((1000, set()), (half, {"o.parts"})):
        assert fork(partial(run, n_bytes)) == 0
        assert set(os.listdir(tmp_path)) == {"expected", *left}
    embed(files, text, path, resume=True)
    assert_same_files(path, tmp_path / "expected")


def test_a_folder_that_is_damaged_or_removed(files, tmp_path):
    text, path = make_text(20), tmp_path / "o"
    interrupt(files, text, path, 2)
    for settings in ("{", "[1]", "3"):
        (tmp_path / "o.parts" / "settings.json").write_text(settings)
        with pytest.raises(ValueError, match="o.parts.settings.json: damaged; start again"):
            embed(files, text, path, resume=True)
    if os.name == "nt":  # which removes no folder with open files
        return

    def remove(*args):
        shutil.rmtree(tmp_path / "o.parts")
        torch_save(*args)

    torch_save = torch.save
    with patch.object(torch, "save", remove):
        with pytest.raises(OSError, match="the folder was removed during the run; start again"):
            embed(files, text, path, overwrite=True)


def test_what_a_killed_run_began_is_overwritten(files, tmp_path, monkeypatch):
    text, path = make_text(10), tmp_path / "o"
    monkeypatch.setattr(
        ElmoEmbedder, "launch_batch", lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    )
    for _ in range(3):
        assert fork(partial(embed, files, text, path, resume=True)) == signal.SIGKILL
    names = {"settings.json", "shard-0.lock", "join.lock", "joined"}
    assert len(set(os.listdir(f"{path}.parts")) - names) == 1


@pytest.mark.parametrize("n_lines", [40, 5])
def test_shards_at_the_same_time(files, tmp_path, n_lines):
    text, path = make_text(n_lines), tmp_path / "o"
    summary = embed(files, text, tmp_path / "whole")
    children = []
    for shard in range(2):
        arguments = {"num_shards": 2, "shard_index": shard, "overwrite": True}
        run = partial(embed, files, text, path, **arguments)
        children.append(fork(run, wait=False))
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 2
    assert_same_files(path, tmp_path / "whole")
    assert sorted(os.listdir(tmp_path)) == ["o", "whole"]
    assert embed(files, text, path, num_shards=2, shard_index=0) == summary


@pytest.mark.parametrize("order", [[1, 2], [1, 2, 0]])
def test_a_shard_that_others_overtake(files, tmp_path, monkeypatch, order):
    """It joins the parts that they wrote after it had passed them, unless they did."""
    text, path = make_text(30), tmp_path / "o"
    embed(files, text, tmp_path / "whole")
    write, shards = PartsFolder.write, iter(order)

    def overtake(folder, *part):
        yield from write(folder, *part)
        with pytest.MonkeyPatch.context() as context:
            context.setattr(PartsFolder, "write", write)
            for shard in shards:
                with suppress(BlockingIOError):  # This one is at work itself.
                    embed(files, text, path, num_shards=3, shard_index=shard)

    monkeypatch.setattr(PartsFolder, "write", overtake)
    assert embed(files, text, path, num_shards=3, shard_index=0)["missing_parts"] == 0
    assert_same_files(path, tmp_path / "whole")


def test_one_process_a_shard(files, tmp_path):
    with PartsFolder(f"{tmp_path}/o").lock("shard-0"):
        with pytest.raises(BlockingIOError, match="another process is using it.*o.parts"):
            embed(files, "a\n", tmp_path / "o", resume=True)


def test_a_shard_waits_while_another_joins(files, tmp_path):
    started = Event()

    def join():
        with PartsFolder(f"{tmp_path}/o").lock("join"):
            started.set()
            time.sleep(0.5)

    with ThreadPoolExecutor() as pool:
        joining = pool.submit(join)
        started.wait()
        embed(files, "a\n", tmp_path / "o")
        assert joining.done() and os.listdir(tmp_path) == ["o"]


def note_batches(monkeypatch):
    """Return the lengths of the sentences in each batch from now on."""
    launch_batch = ElmoEmbedder.launch_batch
    batches = []

    def note(self, batch, *args):
        batches.append([len(sentence) for sentence in batch])
        return launch_batch(self, batch, *args)

    monkeypatch.setattr(ElmoEmbedder, "launch_batch", note)
    return batches


@pytest.mark.parametrize(
    "lengths, arguments, expected",
    [
        ([3, 50, 1, 7, 2, 9, 0, 3], {"batch_tokens": 20}, [[50], [9, 7], [3, 3, 2, 1, 0]]),
        ([1] * 7, {"batch_size": 3}, [[1] * 3, [1] * 3, [1]]),
        # As in AllenNLP 0.9
        ([1] * 150, {"initial_state": "carried"}, [[1] * 64, [1] * 64, [1] * 22]),
        ([2, 1, 3], {"initial_state": "carried"}, [[2, 1, 3]]),
    ],
)
def test_batches(files, monkeypatch, tmp_path, lengths, arguments, expected):
    monkeypatch.setattr(corpus_embedder, "PART_WORDS", 2**15)
    batches = note_batches(monkeypatch)
    text = "\n".join(" ".join("a" * n) for n in lengths)
    embed(files, text, tmp_path / "o", **{"batch_size": None, "batch_tokens": 4096, **arguments})
    assert batches == expected


def test_bad_arguments(files, tmp_path):
    for arguments, message in [
        ({"compression": "zip"}, "compression is 'zip'"),
        ({"batch_tokens": 0}, "batch_tokens is 0; it must be at least 1"),
        ({"num_shards": 2, "shard_index": 2}, "no shard 2 of 2"),
        ({"num_shards": 2, "initial_state": "carried"}, "can't be divided"),
        ({"include_sentence_indices": True, "use_sentence_keys": True}, "leave out one"),
        ({"pooling": "mean", "use_sentence_keys": True}, "a vector a sentence is a row, not a key"),
    ]:
        with pytest.raises(ValueError, match=message):
            embed(files, "a\n", tmp_path / "o", **arguments)
    assert os.listdir(tmp_path) == []


def test_a_mapping_too_long_for_hdf5(files, tmp_path, monkeypatch):
    text, mapping = "мир 1\nмир 2\n", '{"мир 1": "0", "мир 2": "1"}'.encode()
    monkeypatch.setattr(layers_file, "MAX_MAPPING_BYTES", len(mapping))
    embed(files, text, tmp_path / "o")
    assert read_arrays(tmp_path / "o")["sentence_to_index"][0] == mapping
    monkeypatch.setattr(layers_file, "MAX_MAPPING_BYTES", len(mapping) - 1)
    with pytest.raises(ValueError, match="leave it out"):
        embed(files, text, tmp_path / "p")
    # What was computed is not lost.
    assert sorted(os.listdir(tmp_path)) == ["o", "p.parts"]
    embed(files, text, tmp_path / "p", forget_sentences=True, resume=True)
    assert sorted(os.listdir(tmp_path)) == ["o", "p"]


def test_sentences_as_keys(files, tmp_path):
    """Their layers are there once, since they are the same unless states are carried."""
    lines = "1 / 2\n1 / 3\n/ x\ny //\na /./ b\n日本 / é\n1 / 2\n...\n"
    text = lines + "w" * 80_000
    embed(files, text, tmp_path / "o", use_sentence_keys=True)
    embed(files, text, tmp_path / "numbers")
    with h5py.File(tmp_path / "o", "r") as file, h5py.File(tmp_path / "numbers", "r") as other:
        for i, sentence in enumerate(text.split("\n")):
            np.testing.assert_allclose(file[sentence][...], other[str(i)][...], atol=1e-6)
        assert "sentence_to_index" not in file
    with pytest.raises(ValueError, match="line 7: HDF5 can't store the sentence '1 / 2' as"):
        embed(files, text, tmp_path / "p", "carried", use_sentence_keys=True)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_sentences_that_hdf5_cannot_tell_apart_or_write(files, tmp_path, compression):
    path = tmp_path / "o"
    for text in "a /a|b/_a b//_a|a a/b/c|a/b/c a/b|a  b|b /|b .|b a\0b".split("|"):
        text = text.replace(" ", "\n").replace("_", " ") + "\n"
        with pytest.raises(ValueError, match="line 2: HDF5 can't store .* or has it already"):
            embed(files, text, path, use_sentence_keys=True, compression=compression)
        embed(files, text, path, resume=True)  # What was computed is not lost.
        assert os.listdir(tmp_path) == ["o"]
        path.unlink()


def test_tiny_says_that_it_was_trained_on_english(tmp_path, caplog):
    for text, n_warnings in (("Un café à la crème .\n", 0), ("Мама мыла раму .\n", 1)):
        caplog.clear()
        output = str(tmp_path / f"{n_warnings}.hdf5")
        ElmoEmbedder().embed_file(io.BytesIO(text.encode()), output)
        assert caplog.text.count("most letters are not Latin") == n_warnings
