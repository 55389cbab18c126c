"""
Mutated files for the readers: each must be read or refused with an error of ours that names the
file, in ten seconds of the processor's time and half a gigabyte.
"""

import gzip
import io
import logging
import random
import re
import resource
import shutil
import signal
import struct
import tarfile
import tempfile
import zipfile
from pathlib import Path
from unittest.mock import patch

import h5py
import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.elmo.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.files.tensors import read_tensors
from allennlp_elmo_plugin.pretrained.checkpoints import saved_variables, tensorflow_checkpoint
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained
from allennlp_elmo_plugin.text.lines import open_lines
from allennlp_elmo_plugin.text.vocabulary import read_vocabulary_file
from tests.pretrained.archive_test import pack, pack_zip
from tests.support.bilm_tf import REFERENCE
from tests.support.tensorflow_checkpoint_writer import write_index
from tests.support.testing import fork, read_arrays

SECONDS = 10
EXTRA_BYTES = 2**29

CHECKPOINT = REFERENCE / "checkpoint"
INDEX = "model.ckpt-30.index"
MANY_LANGS = "chinese_short_words"
WORDS = ["<S>", "</S>", "<UNK>", "the", "naïve", "東京", "a\u00a0b", "x" * 60]
TEXT = "the naïve 東京 .\n\n\ufeff a\u00a0b \t c\r\nlast line".encode()

NUMBERS = [0, 1, 3, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, *(2**n - 1 for n in (31, 32, 63, 64)), 2**63]
JSON = "1e999 NaN -Infinity -1 0 1e9 2147483648 1.5 1e-400 true null [] {} \ufeff".split()
JSON += ["9" * 400, '"\\u001b[31m"', "[" * 3000, '{"a":' * 3000, '"\\ud800"']


def mutate(data, rng):
    """Change a few places of a file."""
    for _ in range(min(8, int(rng.expovariate(0.6)) + 1)):
        place, size = rng.randrange(len(data) + 1), min(64, int(rng.expovariate(0.1)) + 1)
        before, here, after = data[:place], data[place : place + size], data[place + size :]
        start = rng.randrange(len(data) + 1)
        form = rng.choice(["<B", "<H", "<I", "<Q", ">I", ">Q"])
        number = rng.choice(NUMBERS) % 2 ** (8 * struct.calcsize(form))
        choices = [
            bytes([here[0] ^ 1 << rng.randrange(8)]) + here[1:] if here else b"",
            bytes([rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])]) + here[1:],
            rng.randbytes(size) + here,
            b"",
            here * rng.choice([2, 2, 3, 51]),
            data[start : start + size],
            struct.pack(form, number) + here[struct.calcsize(form) :],
            rng.choice([b"\n", b"\0", b"\x1b[2J", b"\xff\xfe", b"\xed\xa0\x80"]) + here,
        ]
        data = before if rng.random() < 0.03 else before + rng.choice(choices) + after
    return data


def mutate_json(data, rng):
    if rng.random() < 0.4:
        return mutate(data, rng)
    text = data.decode("utf-8")
    for _ in range(rng.randrange(1, 4)):
        tokens = [m.span() for m in re.finditer(r'-?\d[\d.]*|"[^"]*"|true|false|null', text)]
        if not tokens:
            break
        start, end = rng.choice(tokens)
        start_of_other, end_of_other = rng.choice(tokens)
        other = text[start_of_other:end_of_other]
        text = text[:start] + rng.choice([rng.choice(JSON), other, other]) + text[end:]
    return text.encode("utf-8", "surrogatepass")


def mutate_gzip(data, rng):
    return gzip.compress(mutate(gzip.decompress(data), rng), 1)


def mutate_end(data, rng):
    """Change the index at the end of a zip."""
    start = data.index(b"PK\1\2")
    return data[:start] + mutate(data[start:], rng)


def mutate_zip(data, rng):
    """Change a file in a zip."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return pack_zip(mutate_one(files, rng), rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))


def mutate_tar(data, rng):
    """Change a file in a tar."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        files = {info.name: archive.extractfile(info).read() for info in archive if info.isfile()}
    return gzip.compress(pack(files=mutate_one(files, rng)), 1)


def mutate_header(data, rng):
    """Change a block of a tar, most of which are headers."""
    tar = gzip.decompress(data)
    place = 512 * rng.randrange(len(tar) // 512)
    return gzip.compress(tar[:place] + mutate(tar[place : place + 512], rng) + tar[place + 512 :])


def mutate_entries(data, rng):
    """Change entries of a checkpoint's index, whose checksums are right."""
    read_block = tensorflow_checkpoint._block
    with patch.object(tensorflow_checkpoint, "_block", side_effect=read_block) as read:
        tensorflow_checkpoint.read_index(CHECKPOINT / INDEX)
    entries = dict(read_block(*read.call_args.args))  # of the last block, the only one
    for _ in range(rng.randrange(1, 4)):
        key = rng.choice(list(entries))
        value = entries.pop(key)
        entries[mutate(key, rng) if rng.random() < 0.3 else key] = mutate(value, rng)
    with tempfile.NamedTemporaryFile() as file:
        write_index(file.name, entries, rng.choice([1, 7, 20, 1000]))
        return file.read()


def mutate_one(files, rng):
    pickles = [name for name in files if name.endswith("data.pkl")]
    name = rng.choice([rng.choice(list(files)), *pickles])
    change = {".json": mutate_json, ".th": mutate_zip}.get(Path(name).suffix, mutate)
    return {**files, name: change(files[name], rng)}


READERS = {
    "options": ("options.json", [mutate_json]),
    "index": (INDEX, [mutate, mutate_entries]),
    "checkpoint": ("checkpoint", [mutate]),
    "vocabulary": ("vocab.txt", [mutate]),
    "text": ("text", [mutate]),
    "gzip": ("text.gz", [mutate, mutate_gzip]),
    "tensors": ("weights.th", [mutate, mutate_zip, mutate_zip]),
    "hdf5": ("weights.hdf5", [mutate]),
    "compressed": ("compressed.hdf5", [mutate]),
    "archive": ("model.tar.gz", [mutate, mutate_header, mutate_tar, mutate_tar]),
    "zip": ("model.zip", [mutate, mutate_end, mutate_zip, mutate_zip]),
    "old tensors": (f"{MANY_LANGS}/token_embedder.pkl", [mutate]),
    "dictionary": (f"{MANY_LANGS}/char.dic", [mutate]),
    "architecture": (f"{MANY_LANGS}/cnn_50_100_512_4096_sample.json", [mutate_json]),
}
"""For each reader the file in which something is wrong, and how."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder with the files as they should be."""
    folder = tmp_path_factory.mktemp("sound")
    import_model(CHECKPOINT, folder, REFERENCE / "data" / "vocab.txt")
    shutil.copytree(CHECKPOINT, folder, dirs_exist_ok=True)
    export(str(folder / "model.tar.gz"), folder / "model.zip", zip=True)
    with tarfile.open(folder / "model.tar.gz") as archive:
        archive.extract("weights.th", folder)
    with h5py.File(folder / "compressed.hdf5", "w") as file:
        for name, values in read_arrays(folder / "weights.hdf5").items():
            filters = {"compression": "gzip", "shuffle": True, "fletcher32": True}
            file.create_dataset(name, data=values, **filters)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), "utf-8")
    fixtures = REFERENCE.with_name("elmo_for_many_langs")
    shutil.copytree(fixtures / MANY_LANGS, folder / MANY_LANGS)
    (folder / "text").write_bytes(TEXT)
    (folder / "text.gz").write_bytes(gzip.compress(TEXT))
    return folder


def read(path):
    """Read a file as those do who use it."""
    name, options = path.name, path.with_name("options.json")
    if name == "options.json":
        BiLmOptions.from_file(path).to_dict()
    elif name in (INDEX, "checkpoint"):
        prefix = tensorflow_checkpoint.find_checkpoint(path.parent)
        with saved_variables.open_weights(prefix) as weights:
            read_variables(weights)
        saved_variables.read_accumulators(prefix)
    elif path.parent.name == MANY_LANGS:
        ElmoBiLm(str(path.parent), None).run_sentences([WORDS])
    elif name == "vocab.txt":
        read_vocabulary_file(path)
    elif name.startswith("text"):
        with open_lines(path) as lines:
            list(lines)
    elif name == "weights.th":
        tensors = read_tensors(path)
        for tensor in tensors.values():
            tensor.sum()
        options = BiLmOptions.from_file(options)
        read_variables(saved_variables.weights_of_state_dict(str(path), tensors, options))
    elif name.endswith(".hdf5"):
        with saved_variables.open_weights(path) as weights:
            read_variables(weights)
            values = BiLmOptions.from_file(options).to_dict()
            completed = saved_variables.read_options(values, str(path), weights)
            saved_variables.make_language_model(completed, weights)
    else:
        read_pretrained(str(path))


def read_variables(weights):
    # A model has no scalars.
    for name, variable in weights.variables.items():
        for _ in weights.read(name) if variable.shape else ():
            pass


def read_cases(folder, reader, seed, n_cases, log):
    """Read the file as it is, then each case; note what becomes of a case."""
    logging.disable(logging.WARNING)  # of unknown keys
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + EXTRA_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    name, mutations = READERS[reader]
    path = folder / name
    sound = path.read_bytes()
    read(path)
    for number in range(n_cases):
        rng = random.Random(f"{seed} {reader} {number}")
        path.write_bytes(rng.choice(mutations)(sound, rng))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        result = "read"
        try:
            read(path)
        except BaseException as error:
            message, result = str(error), "refused"
            is_ours = isinstance(error, (ValueError, FileNotFoundError, ConfigurationError))
            unprintable = re.search(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]", message)
            if not is_ours or str(folder) not in message or len(message) > 2000 or unprintable:
                result = f"{type(error).__name__}: {message[:500]!r}"
        with open(log, "a") as file:
            file.write(f"{result}\n")


@pytest.mark.parametrize(
    "seed, n_cases", [(1, 40), pytest.param(2, 600, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("reader", READERS)
def test_mutated_files_are_read_or_refused(reader, seed, n_cases, sound, tmp_path):
    """In a child process, which may crash, hang or run out of memory."""
    folder, log = shutil.copytree(sound, tmp_path / "folder"), tmp_path / "log"
    status = fork(lambda: read_cases(folder, reader, seed, n_cases, log))
    results = log.read_text().splitlines()
    assert status == 0, f"case {len(results)} ends the process, with status {status}"
    assert {*results} == {"read", "refused"}, [*enumerate(results)]
