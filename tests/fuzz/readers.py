"""
Mutated files for the readers: each must be read or refused with an error of ours that names the
file, in ten seconds of the processor's time and half a gigabyte.

    python -m tests.fuzz.readers --cases 200000 --seed 1

prints the numbers of the cases that fail; case N of a seed is always the same.
"""

import argparse
import functools
import gzip
import io
import json
import logging
import os
import random
import re
import resource
import signal
import struct
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple
from unittest.mock import patch

import h5py
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.bilm.checkpoints import tensorflow_checkpoint
from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import (
    Weights,
    make_language_model,
    open_weights,
    read_accumulators,
    read_options,
    weights_of_state_dict,
)
from allennlp_elmo_plugin.bilm.checkpoints.tensorflow_checkpoint import find_checkpoint
from allennlp_elmo_plugin.bilm.checkpoints.weights import read_weights, write_weights
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.data.vocabulary import write_vocabulary_folder
from allennlp_elmo_plugin.files.tensors import read_tensors
from allennlp_elmo_plugin.files.text_lines import open_lines
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.models.pretrained import read_pretrained
from tests.support.bilm_tf import REFERENCE
from tests.support.tensorflow_checkpoint_writer import write_index
from tests.support.testing import read_arrays

SECONDS = 10
EXTRA_BYTES = 2**29

# How the cases are dealt to the readers.
SHARES = {
    "options": 0.22,
    "index": 0.2,
    "vocabulary": 0.15,
    "text": 0.15,
    "tensors": 0.12,
    "hdf5": 0.1,
    "archive": 0.03,
    "zip": 0.03,
}

_CNN = {"activation": "relu", "embedding": {"dim": 2}, "filters": [[1, 2], [2, 2]]}
_SIZES = {"max_characters_per_token": 50, "n_characters": 262, "n_highway": 1}
_LSTM = {"cell_clip": 3, "dim": 4, "n_layers": 1, "proj_clip": 3, "projection_dim": 3}
OPTIONS: Dict[str, Any] = {
    "bidirectional": True,
    "char_cnn": {**_CNN, **_SIZES},
    "dropout": 0.1,
    "lstm": {**_LSTM, "use_skip_connections": True},
    "all_clip_norm_val": 10.0,
    "sample_softmax": False,
    "unroll_steps": 20,
}
WORDS = ["<S>", "</S>", "<UNK>", "the", "naïve", "東京", "a\u00a0b", "x" * 60]
TEXT = "the naïve 東京 .\n\n\ufeff a\u00a0b \t c\r\nlast line".encode()

_NUMBERS = [0, 1, 3, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, *(2**n - 1 for n in (31, 32, 63, 64)), 2**63]
_JSON = "1e999 NaN -Infinity -1 0 1e9 2147483648 1.5 1e-400 true null [] {} \ufeff".split()
_JSON += ["9" * 400, '"\\u001b[31m"', "[" * 3000, '{"a":' * 3000, '"\\ud800"']


Case = Dict[str, bytes]
"""What a reader reads: the files of a folder by their names."""


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change a few places of a file."""
    for _ in range(min(8, int(rng.expovariate(0.6)) + 1)):
        place, size = rng.randrange(len(data) + 1), min(64, int(rng.expovariate(0.1)) + 1)
        before, here, after = data[:place], data[place : place + size], data[place + size :]
        start = rng.randrange(len(data) + 1)
        form = rng.choice(["<B", "<H", "<I", "<Q", ">I", ">Q"])
        number = rng.choice(_NUMBERS) % 2 ** (8 * struct.calcsize(form))
        found = [
            bytes([here[0] ^ 1 << rng.randrange(8)]) + here[1:] if here else b"",
            bytes([rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])]) + here[1:],
            rng.randbytes(size) + here,
            b"",
            here * rng.choice([2, 2, 3, 51]),
            data[start : start + size],
            struct.pack(form, number) + here[struct.calcsize(form) :],
            rng.choice([b"\n", b"\0", b"\x1b[2J", b"\xff\xfe", b"\xed\xa0\x80"]) + here,
        ]
        kind = rng.randrange(len(found) + 1)
        if kind < len(found):
            data = before + found[kind] + after
        elif rng.random() < 0.3:
            data = before
    return data


def mutate_json(data: bytes, rng: random.Random) -> bytes:
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


class Seeds:
    """Sound files, small ones, made in a folder, and how to change each kind of them."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(0)
        self.options = json.dumps(OPTIONS).encode()
        self.vocabulary = "".join(f"{word}\n" for word in WORDS).encode()
        self.bilm_options = BiLmOptions.from_dict(OPTIONS)
        self.bilm = BiLm(self.bilm_options)
        write_weights(folder / "weights.hdf5", self.bilm)
        self.hdf5 = [(folder / "weights.hdf5").read_bytes(), self._compressed(folder)]
        checkpoint = REFERENCE / "checkpoint"
        self.index = next(checkpoint.glob("*.index")).read_bytes()
        self.index_prefix = next(checkpoint.glob("*.index")).name[: -len(".index")]
        self.data = next(checkpoint.glob("*.data-*"))
        self.entries = self._entries(checkpoint)
        write_vocabulary_folder(folder / "vocabulary", WORDS)
        vocab = Vocabulary.from_files(str(folder / "vocabulary"))
        model = BidirectionalLanguageModel(vocab, options=OPTIONS)
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        self.tensors = buffer.getvalue()
        config = {"model": {"type": "bidirectional_lm", "options": OPTIONS}}
        self.members = {
            "config.json": json.dumps(config).encode(),
            "weights.th": self.tensors,
            "vocabulary/lm_tokens.txt": self.vocabulary,
            "vocabulary/non_padded_namespaces.txt": b"*tags\n*labels\nlm_tokens\n",
            "meta.json": b"{}",
        }

    def _compressed(self, folder: Path) -> bytes:
        filters = {"compression": "gzip", "shuffle": True, "fletcher32": True}
        with h5py.File(folder / "compressed.hdf5", "w") as file:
            for name, values in read_arrays(folder / "weights.hdf5").items():
                file.create_dataset(name, data=values, **filters)
        return (folder / "compressed.hdf5").read_bytes()

    def _entries(self, checkpoint: Path) -> Dict[bytes, bytes]:
        """The entries of the index, which its last block has."""
        found: List[Dict[bytes, bytes]] = []
        read_block = tensorflow_checkpoint._block

        def block(*arguments: Any) -> Any:
            found.append(dict(read_block(*arguments)))
            return iter(found[-1].items())

        with patch.object(tensorflow_checkpoint, "_block", block):
            tensorflow_checkpoint.read_index(find_checkpoint(checkpoint))
        return found[-1]

    def options_case(self, rng: random.Random) -> Case:
        return {"options.json": mutate_json(self.options, rng)}

    def hdf5_case(self, rng: random.Random) -> Case:
        return {"weights.hdf5": mutate(rng.choice(self.hdf5), rng)}

    def index_case(self, rng: random.Random) -> Case:
        named = f'model_checkpoint_path: "{self.index_prefix}"\n'.encode()
        index = self.index
        choice = rng.randrange(3)
        if choice == 0:
            index = mutate(index, rng)
        elif choice == 1:
            named = mutate(named, rng)
        else:  # with the right checksums
            entries = dict(self.entries)
            for _ in range(rng.randrange(1, 4)):
                key = rng.choice(list(entries))
                value = entries.pop(key)
                entries[mutate(key, rng) if rng.random() < 0.3 else key] = mutate(value, rng)
            path = Path(_scratch().name, "made.index")
            write_index(path, entries, rng.choice([1, 7, 20, 1000]))
            index = path.read_bytes()
        return {f"{self.index_prefix}.index": index, "checkpoint": named}

    def vocabulary_case(self, rng: random.Random) -> Case:
        return {"vocab.txt": mutate(self.vocabulary, rng)}

    def text_case(self, rng: random.Random) -> Case:
        if rng.random() < 0.5:
            return {"text": mutate(TEXT, rng)}
        if rng.random() < 0.5:
            return {"text": mutate(gzip.compress(TEXT), rng)}
        return {"text": gzip.compress(mutate(TEXT, rng), 1)}

    def tensors_case(self, rng: random.Random) -> Case:
        return {"weights.th": self._tensors(rng)}

    def _tensors(self, rng: random.Random) -> bytes:
        if rng.random() < 0.3:
            return mutate(self.tensors, rng)
        with zipfile.ZipFile(io.BytesIO(self.tensors)) as source:
            members = {name: source.read(name) for name in source.namelist()}
        chosen = rng.choice(list(members))
        for name, data in members.items():
            if name.endswith("data.pkl") or name == chosen:
                members[name] = mutate(data, rng)
        return _zip(members)

    def archive_case(self, rng: random.Random) -> Case:
        members = dict(self.members)
        choice = rng.randrange(6)
        if choice == 0:
            members["config.json"] = mutate_json(members["config.json"], rng)
        elif choice == 1:
            members["weights.th"] = self._tensors(rng)
        elif choice == 2:
            name = rng.choice(list(members))
            members[name] = mutate(members[name], rng)
        tar = _tar(members)
        if choice == 3:
            # Mostly in the headers.
            place = 512 * rng.randrange(len(tar) // 512)
            tar = tar[:place] + mutate(tar[place : place + 512], rng) + tar[place + 512 :]
        archive = gzip.compress(tar, 1)
        return {"model.tar.gz": mutate(archive, rng) if choice >= 4 else archive}

    def zip_case(self, rng: random.Random) -> Case:
        members = {"209/options.json": self.options, "209/model.hdf5": self.hdf5[0]}
        choice = rng.randrange(4)
        if choice == 0:
            members["209/options.json"] = mutate_json(self.options, rng)
        elif choice == 1:
            members["209/model.hdf5"] = mutate(self.hdf5[0], rng)
        archive = _zip(members, rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
        if choice >= 2:  # anywhere, or in the index at the end
            start = archive.index(b"PK\1\2") if choice == 3 else 0
            archive = archive[:start] + mutate(archive[start:], rng)
        return {"model.zip": archive}

    def read(self, reader: str, folder: Path) -> None:
        """Read the files of a case."""
        if reader == "options":
            BiLmOptions.from_file(folder / "options.json").to_dict()
        elif reader == "hdf5":
            read_weights(folder / "weights.hdf5", self.bilm)
            with open_weights(folder / "weights.hdf5") as weights:
                _read_blocks(weights, 2)  # All are read as weights.
                options = read_options(OPTIONS, str(folder), weights)
                make_language_model(options, weights)
        elif reader == "index":
            prefix = find_checkpoint(folder)
            with open_weights(prefix) as weights:
                _read_blocks(weights)
            read_accumulators(prefix)
        elif reader == "vocabulary":
            read_vocabulary_file(folder / "vocab.txt")
        elif reader == "text":
            with open_lines(str(folder / "text")) as lines:
                list(lines)
        elif reader == "tensors":
            for tensor in read_tensors(folder / "weights.th").values():
                tensor.sum()
            tensors = read_tensors(folder / "weights.th")
            source = str(folder / "weights.th")
            options = replace(self.bilm_options, n_tokens_vocab=len(WORDS))
            _read_blocks(weights_of_state_dict(source, tensors, options))
        else:
            read_pretrained(str(folder / ("model.zip" if reader == "zip" else "model.tar.gz")))


def _read_blocks(weights: Weights, n_read: Optional[int] = None) -> None:
    # A model has no scalars.
    shapes = {name: variable.shape for name, variable in weights.variables.items()}
    for name in [name for name, shape in shapes.items() if shape][:n_read]:
        for _ in weights.read(name):
            pass


def _zip(members: Dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def _tar(members: Dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory:
    """A folder in memory, where there is one."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


class Fuzzer:
    """Case `i` of a reader is the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        made = Path(_scratch().name, "seeds")
        made.mkdir(exist_ok=True)
        self.seeds = Seeds(made)

    def case(self, reader: str, number: int) -> Case:
        rng = random.Random(f"{self.seed} {reader} {number}")
        make: Callable[[random.Random], Case] = getattr(self.seeds, f"{reader}_case")
        return make(rng)

    def run_case(self, reader: str, number: int) -> Tuple[bool, Optional[str]]:
        """Return whether the files were read, and what was wrong if anything was."""
        folder = Path(_scratch().name, reader)
        folder.mkdir(exist_ok=True)
        for name, data in self.case(reader, number).items():
            (folder / name).write_bytes(data)
        if reader == "index" and not (folder / self.seeds.data.name).exists():
            (folder / self.seeds.data.name).symlink_to(self.seeds.data)
        try:
            self.seeds.read(reader, folder)
        except (ValueError, FileNotFoundError, ConfigurationError) as error:
            message = str(error)
            if str(folder) not in message or len(message) > 2000 or not _is_printable(message):
                return False, f"{type(error).__name__}: {message[:500]!r}"
            return False, None
        except BaseException as error:
            return False, f"{type(error).__name__}: {str(error)[:500]!r}"
        return True, None

    def run_cases(self, reader: str, n_cases: int) -> Tuple[int, Dict[int, str]]:
        """
        Run cases in a child process, which may crash, hang or run out of memory. Return how many
        were read, and what was wrong with others.
        """
        log = Path(_scratch().name, "log")
        log.unlink(missing_ok=True)
        results: List[Tuple[bool, Optional[str]]] = []
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

    def _run_in_child(self, reader: str, numbers: range, log: Path) -> None:
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
        finally:
            os._exit(0)


def _is_printable(message: str) -> bool:
    return not re.search(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]", message)


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readers", nargs="+", choices=list(SHARES), default=list(SHARES))
    args = parser.parse_args(arguments)
    fuzzer = Fuzzer(args.seed)
    logging.disable(logging.WARNING)  # of unknown keys
    total = sum(SHARES[reader] for reader in args.readers)
    n_failures = 0
    for reader in args.readers:
        n_cases = round(args.cases * SHARES[reader] / total)
        n_read, failures = fuzzer.run_cases(reader, n_cases)
        for number, error in failures.items():
            print(f"{reader}, case {number}: {error}")
        print(f"{reader}: {n_cases:,} cases, {n_read:,} read, {len(failures):,} failed", flush=True)
        n_failures += len(failures)
    return 1 if n_failures else 0


if __name__ == "__main__":
    sys.exit(main())
