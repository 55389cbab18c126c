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
import mmap
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

import google_crc32c
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

OPTIONS: Dict[str, Any] = {
    "bidirectional": True,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 2},
        "filters": [[1, 2], [2, 2]],
        "max_characters_per_token": 50,
        "n_characters": 262,
        "n_highway": 1,
    },
    "dropout": 0.1,
    "lstm": {
        "cell_clip": 3,
        "dim": 4,
        "n_layers": 1,
        "proj_clip": 3,
        "projection_dim": 3,
        "use_skip_connections": True,
    },
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
    changed = bytearray(data)
    for _ in range(min(8, int(rng.expovariate(0.6)) + 1)):
        n = len(changed)
        place, size = rng.randrange(n + 1), min(64, int(rng.expovariate(0.1)) + 1)
        kind = rng.randrange(9)
        if kind == 0 and n:
            changed[min(place, n - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1 and n:
            changed[min(place, n - 1)] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        elif kind == 2:
            changed[place:place] = rng.randbytes(size)
        elif kind == 3:
            del changed[place : place + size]
        elif kind == 4:
            changed[place:place] = changed[place : place + size] * rng.choice([1, 1, 2, 50])
        elif kind == 5 and n:
            start = rng.randrange(n)
            changed[place : place + size] = changed[start : start + size]
        elif kind == 6 and rng.random() < 0.3:
            del changed[place:]
        elif kind == 7:
            form = rng.choice(["<B", "<H", "<I", "<Q", ">I", ">Q"])
            number = rng.choice(_NUMBERS) % 2 ** (8 * struct.calcsize(form))
            changed[place : place + struct.calcsize(form)] = struct.pack(form, number)
        elif kind == 8:
            changed[place:place] = rng.choice(
                [b"\n", b"\0", b"\x1b[2J", b"\xff\xfe", b"\xed\xa0\x80"]
            )
    return bytes(changed)


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
    """
    Sound files, small ones, and how to change each kind of them.

    # Parameters

    folder : `Path`
        Where to make them.
    """

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
        self._read_index(checkpoint)
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
        with h5py.File(folder / "weights.hdf5", "r") as source:
            with h5py.File(folder / "compressed.hdf5", "w") as file:

                def copy(name: str, item: Any) -> None:
                    if isinstance(item, h5py.Dataset):
                        file.create_dataset(
                            name, data=item[...], compression="gzip", shuffle=True, fletcher32=True
                        )

                source.visititems(copy)
        return (folder / "compressed.hdf5").read_bytes()

    def _read_index(self, checkpoint: Path) -> None:
        """The entries of the index, and where its blocks are."""
        self.blocks: List[Tuple[int, int]] = []
        self.entries: Dict[bytes, bytes] = {}
        read_block = tensorflow_checkpoint._block

        def block(table: bytes, offset: int, size: int) -> Any:
            self.blocks.append((offset, size))
            self.entries = dict(read_block(table, offset, size))  # The last block has them.
            return iter(self.entries.items())

        with patch.object(tensorflow_checkpoint, "_block", block):
            tensorflow_checkpoint.read_index(find_checkpoint(checkpoint))

    def options_case(self, rng: random.Random) -> Case:
        return {"options.json": mutate_json(self.options, rng)}

    def hdf5_case(self, rng: random.Random) -> Case:
        return {"weights.hdf5": mutate(rng.choice(self.hdf5), rng)}

    def index_case(self, rng: random.Random) -> Case:
        choice = rng.randrange(4)
        named = f'model_checkpoint_path: "{self.index_prefix}"\n'.encode()
        if choice == 0:
            index = mutate(self.index, rng)
        elif choice == 1:
            index = self._with_checksums(rng)
        elif choice == 2:
            index = self._with_other_entries(rng)
        else:
            index, named = self.index, mutate(named, rng)
        return {f"{self.index_prefix}.index": index, "checkpoint": named}

    def _with_checksums(self, rng: random.Random) -> bytes:
        """Blocks that are changed and have the right checksums."""
        table = bytearray(self.index)
        offset, size = rng.choice(self.blocks)
        changed = mutate(bytes(table[offset : offset + size]), rng)
        table[offset : offset + size] = changed[:size].ljust(size, b"\0")
        end = offset + size
        checksum = google_crc32c.value(bytes(table[offset : end + 1]))
        masked = (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF
        table[end + 1 : end + 5] = struct.pack("<I", masked)
        return bytes(table)

    def _with_other_entries(self, rng: random.Random) -> bytes:
        entries = dict(self.entries)
        for _ in range(rng.randrange(1, 4)):
            key = rng.choice(list(entries))
            value = entries.pop(key)
            key = mutate(key, rng) if rng.random() < 0.3 else key
            entries[key] = mutate(value, rng)
        path = Path(_scratch(), "made.index")
        write_index(path, entries, rng.choice([1, 7, 20, 1000]))
        return path.read_bytes()

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
        buffer = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self.tensors)) as source:
            chosen = rng.choice(source.namelist())
            with zipfile.ZipFile(buffer, "w") as made:
                for name in source.namelist():
                    data = source.read(name)
                    if name.endswith("data.pkl") or name == chosen:
                        data = mutate(data, rng)
                    made.writestr(name, data)
        return buffer.getvalue()

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
        buffer = io.BytesIO()
        with zipfile.ZipFile(
            buffer, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
        ) as made:
            for name, data in members.items():
                made.writestr(name, data)
        archive = buffer.getvalue()
        if choice == 2:
            archive = mutate(archive, rng)
        elif choice == 3:
            # In the index at the end.
            start = archive.index(b"PK\1\2")
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


def _tar(members: Dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


_scratch_folder: List[tempfile.TemporaryDirectory] = []


def _scratch() -> str:
    """A folder in memory, where there is one."""
    if not _scratch_folder:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        _scratch_folder.append(tempfile.TemporaryDirectory(dir=memory))
    return _scratch_folder[0].name


class Fuzzer:
    """
    # Parameters

    seed : `int`
        Case `i` of a reader is the same for the same seed.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        made = Path(_scratch(), "seeds")
        made.mkdir(exist_ok=True)
        self.seeds = Seeds(made)

    def case(self, reader: str, number: int) -> Case:
        rng = random.Random(f"{self.seed} {reader} {number}")
        make: Callable[[random.Random], Case] = getattr(self.seeds, f"{reader}_case")
        return make(rng)

    def run_case(self, reader: str, number: int) -> Tuple[bool, Optional[str]]:
        """Return whether the files were read, and what was wrong if anything was."""
        folder = Path(_scratch(), reader)
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
        failures: Dict[int, str] = {}
        shared = mmap.mmap(-1, 16)  # the number of the case, and how many were read
        shared[:] = struct.pack("<qq", 0, 0)
        while (start := struct.unpack("<q", shared[:8])[0]) < n_cases:
            receiver, sender = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(receiver)
                self._run_in_child(reader, start, n_cases, shared, sender)
            os.close(sender)
            with os.fdopen(receiver) as pipe:
                failures.update(json.loads(line) for line in pipe if line.endswith("\n"))
            _, status = os.waitpid(child, 0)
            if status:
                number, n_read = struct.unpack("<qq", shared[:])
                hangs = status in (signal.SIGPROF, signal.SIGALRM)
                failures[number] = "hangs" if hangs else f"dies (status {status})"
                shared[:] = struct.pack("<qq", number + 1, n_read)
        return struct.unpack("<q", shared[8:])[0], failures

    def _run_in_child(
        self, reader: str, start: int, end: int, shared: mmap.mmap, sender: int
    ) -> None:
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + EXTRA_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            n_read = struct.unpack("<q", shared[8:])[0]
            for number in range(start, end):
                # Of the processor's time, as others may use it, and of the clock's.
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                signal.alarm(20 * SECONDS)
                was_read, error = self.run_case(reader, number)
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.alarm(0)
                if error is not None:
                    os.write(sender, (json.dumps([number, error]) + "\n").encode())
                n_read += was_read
                shared[:] = struct.pack("<qq", number + 1, n_read)
        finally:
            os._exit(0 if struct.unpack("<q", shared[:8])[0] == end else 1)


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
