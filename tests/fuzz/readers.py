"""
Mutated files for the readers: each must be read or refused with an error of ours that names the
file, in ten seconds of the processor's time and half a gigabyte.

    python -m tests.fuzz.readers --cases 200000 --seed 1

prints the numbers of the cases that fail; case N of a seed is always the same.
"""

import argparse
import gzip
import io
import json
import logging
import os
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import patch

import h5py
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
from tests.support.testing import read_arrays, read_files

SECONDS = 10
EXTRA_BYTES = 2**29

CHECKPOINT = REFERENCE / "checkpoint"
INDEX = "model.ckpt-30.index"
MANY_LANGS = "chinese_short_words"
ARCHITECTURE = "cnn_50_100_512_4096_sample.json"
WORDS = ["<S>", "</S>", "<UNK>", "the", "naïve", "東京", "a\u00a0b", "x" * 60]
TEXT = "the naïve 東京 .\n\n\ufeff a\u00a0b \t c\r\nlast line".encode()

_NUMBERS = [0, 1, 3, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, *(2**n - 1 for n in (31, 32, 63, 64)), 2**63]
_JSON = "1e999 NaN -Infinity -1 0 1e9 2147483648 1.5 1e-400 true null [] {} \ufeff".split()
_JSON += ["9" * 400, '"\\u001b[31m"', "[" * 3000, '{"a":' * 3000, '"\\ud800"']


def mutate(data, rng):
    """Change a few places of a file."""
    for _ in range(min(8, int(rng.expovariate(0.6)) + 1)):
        place, size = rng.randrange(len(data) + 1), min(64, int(rng.expovariate(0.1)) + 1)
        before, here, after = data[:place], data[place : place + size], data[place + size :]
        start = rng.randrange(len(data) + 1)
        form = rng.choice(["<B", "<H", "<I", "<Q", ">I", ">Q"])
        number = rng.choice(_NUMBERS) % 2 ** (8 * struct.calcsize(form))
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
        text = text[:start] + rng.choice([rng.choice(_JSON), other, other]) + text[end:]
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
    return pack_zip(_mutate_one(files, rng), rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))


def mutate_tar(data, rng):
    """Change a file in a tar."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        files = {info.name: archive.extractfile(info).read() for info in archive if info.isfile()}
    return gzip.compress(pack(files=_mutate_one(files, rng)), 1)


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


def _mutate_one(files, rng):
    pickles = [name for name in files if name.endswith("data.pkl")]
    name = rng.choice([rng.choice(list(files)), *pickles])
    change = {".json": mutate_json, ".th": mutate_zip}.get(Path(name).suffix, mutate)
    return {**files, name: change(files[name], rng)}


READERS: dict[str, tuple[float, str, list[Callable[[bytes, random.Random], bytes]]]] = {
    "options": (0.22, "options.json", [mutate_json]),
    "index": (0.14, INDEX, [mutate, mutate_entries]),
    "checkpoint": (0.06, "checkpoint", [mutate]),
    "vocabulary": (0.15, "vocab.txt", [mutate]),
    "text": (0.08, "text", [mutate]),
    "gzip": (0.07, "text.gz", [mutate, mutate_gzip]),
    "tensors": (0.12, "weights.th", [mutate, mutate_zip, mutate_zip]),
    "hdf5": (0.05, "weights.hdf5", [mutate]),
    "compressed": (0.05, "compressed.hdf5", [mutate]),
    "archive": (0.03, "model.tar.gz", [mutate, mutate_header, mutate_tar, mutate_tar]),
    "zip": (0.03, "model.zip", [mutate, mutate_end, mutate_zip, mutate_zip]),
    "old tensors": (0.04, f"{MANY_LANGS}/token_embedder.pkl", [mutate]),
    "dictionary": (0.04, f"{MANY_LANGS}/char.dic", [mutate]),
    "architecture": (0.04, f"{MANY_LANGS}/{ARCHITECTURE}", [mutate_json]),
}
"""The share of the cases that each reader has, the file in which something is wrong, and how."""
_TOGETHER = ("old tensors", "dictionary", "architecture")


class Fuzzer:
    """Case `i` of a reader is the same for the same seed."""

    def __init__(self, seed):
        self.seed = seed
        # In memory, where that is possible
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._scratch = tempfile.TemporaryDirectory(dir=memory)
        self.folder = folder = Path(self._scratch.name, "folder")
        folder.mkdir()
        with redirect_stdout(None):
            import_model(CHECKPOINT, folder, REFERENCE / "data" / "vocab.txt")
            shutil.copytree(CHECKPOINT, folder, dirs_exist_ok=True)
            export(str(folder / "model.tar.gz"), folder / "model.zip", zip=True)
        with tarfile.open(folder / "model.tar.gz") as archive:
            archive.extract("weights.th", folder)
        self.options = BiLmOptions.from_file(folder / "options.json")
        with h5py.File(folder / "compressed.hdf5", "w") as file:
            for name, values in read_arrays(folder / "weights.hdf5").items():
                filters = {"compression": "gzip", "shuffle": True, "fletcher32": True}
                file.create_dataset(name, data=values, **filters)
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), "utf-8")
        fixtures = REFERENCE.with_name("elmo_for_many_langs")
        shutil.copytree(fixtures / MANY_LANGS, folder / MANY_LANGS)
        (folder / "text").write_bytes(TEXT)
        (folder / "text.gz").write_bytes(gzip.compress(TEXT))
        self.sound = read_files(folder)

    def read(self, path):
        """Read a file as those do who use it."""
        name = path.name
        if name == "options.json":
            BiLmOptions.from_file(path).to_dict()
        elif name in (INDEX, "checkpoint"):
            prefix = tensorflow_checkpoint.find_checkpoint(path.parent)
            with saved_variables.open_weights(prefix) as weights:
                _read_variables(weights)
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
            weights = saved_variables.weights_of_state_dict(str(path), tensors, self.options)
            _read_variables(weights)
        elif name.endswith(".hdf5"):
            with saved_variables.open_weights(path) as weights:
                _read_variables(weights)
                options = saved_variables.read_options(self.options.to_dict(), str(path), weights)
                saved_variables.make_language_model(options, weights)
        else:
            read_pretrained(str(path))

    def case(self, reader, number):
        """Return what is in the reader's file."""
        rng = random.Random(f"{self.seed} {reader} {number}")
        _, name, mutations = READERS[reader]
        return rng.choice(mutations)(self.sound[name], rng)

    def run_case(self, reader, number):
        """Return whether the file was read, and what was wrong if anything was."""
        # These are read with each other.
        for name in (INDEX, "checkpoint", *(READERS[other][1] for other in _TOGETHER)):
            (self.folder / name).write_bytes(self.sound[name])
        path = self.folder / READERS[reader][1]
        path.write_bytes(self.case(reader, number))
        try:
            self.read(path)
        except BaseException as error:
            message = str(error)
            is_ours = isinstance(error, (ValueError, FileNotFoundError, ConfigurationError))
            unprintable = re.search(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]", message)
            if is_ours and str(self.folder) in message and len(message) <= 2000 and not unprintable:
                return False, None
            return False, f"{type(error).__name__}: {message[:500]!r}"
        return True, None

    def run_cases(self, reader, n_cases):
        """
        Run cases in a child process, which may crash, hang or run out of memory. Return how many
        were read, and what was wrong with others.
        """
        log = Path(self._scratch.name, "log")
        log.unlink(missing_ok=True)
        results: list[tuple[bool, str | None]] = []
        while len(results) < n_cases:
            child = os.fork()
            if child == 0:
                self._run_in_child(reader, range(len(results), n_cases), log)
            _, status = os.waitpid(child, 0)
            if status:
                hangs = status in (signal.SIGPROF, signal.SIGALRM)
                reason = "hangs" if hangs else f"dies (status {status})"
                with open(log, "a") as file:
                    file.write(json.dumps([False, reason]) + "\n")
            results = [json.loads(line) for line in log.read_text().splitlines()]
        failures = {number: error for number, (_, error) in enumerate(results) if error}
        return sum(was_read for was_read, _ in results), failures

    def _run_in_child(self, reader, numbers, log):
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + EXTRA_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with open(log, "a", buffering=1) as file:
                for number in numbers:
                    # Of the processor's time, as others may use it, and of the clock's.
                    signal.setitimer(signal.ITIMER_PROF, SECONDS)
                    signal.alarm(20 * SECONDS)
                    result = self.run_case(reader, number)
                    signal.setitimer(signal.ITIMER_PROF, 0)
                    signal.alarm(0)
                    file.write(json.dumps(result) + "\n")
            os._exit(0)
        finally:
            os._exit(1)


def _read_variables(weights):
    # A model has no scalars.
    for name, variable in weights.variables.items():
        for _ in weights.read(name) if variable.shape else ():
            pass


def main(arguments=None):
    form = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--cases", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    fuzzer = Fuzzer(args.seed)
    logging.disable(logging.WARNING)  # of unknown keys
    failed = False
    for reader, (share, *_) in READERS.items():
        n_cases = round(args.cases * share)
        n_read, failures = fuzzer.run_cases(reader, n_cases)
        for number, error in failures.items():
            print(f"{reader}, case {number}: {error}")
        print(f"{reader}: {n_cases:,} cases, {n_read:,} read, {len(failures):,} failed", flush=True)
        failed = failed or bool(failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
