"""
Train, kill, resume, measure, export and embed on any system, and compare the numbers: those of a
killed run with those of a whole one, and those of `tiny` with Linux's.
"""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.__main__ import main

# Of the last word of "They bank at the bank ." in each layer
TINY = [
    [-0.396388, 1.280717, 0.105029, -0.381338],
    [0.397000, -1.278377, -0.944741, 0.085281],
    [0.054766, -2.414668, -2.879063, 0.610114],
]


def write_text(path: Path, n_sentences: int, end: str = "\n") -> None:
    words = ["the", "river", "bank", "money", "pays", "naïve", "Łódź", "東京", *map(str, range(50))]
    lines = (" ".join(random.choices(words, k=random.randint(3, 12))) for _ in range(n_sentences))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes("".join(f"{line} .{end}" for line in lines).encode())


def run(*arguments: object) -> None:
    main([str(argument) for argument in arguments])


def smoke(folder: Path) -> None:
    random.seed(1)
    heldout, whole, killed = (folder / name for name in ("heldout.txt", "whole", "killed"))
    write_text(heldout, 100)
    write_text(folder / "text" / "a.txt", 800)
    write_text(folder / "text" / "b.txt", 800, "\r\n")
    run("elmo-vocab", folder / "text", "-o", folder / "vocab")
    train = ["elmo-train", folder / "text" / "*.txt", "--validation", heldout, "--size", "demo"]
    train += [
        "--vocab",
        folder / "vocab",
        "--num-epochs",
        2,
        "--seed",
        1,
        "--cuda-device",
        -1,
        "-o",
    ]
    run(*train, whole)
    command = [sys.executable, "-m", "allennlp_elmo_plugin", *map(str, [*train, killed])]
    with subprocess.Popen(command) as process:
        while not (killed / "checkpoint.pt").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    run(*train, killed, "--resume")
    run("elmo-perplexity", killed, heldout)
    run("elmo-export", killed, folder / "exported")
    run("elmo-export", killed, folder / "exported.zip", "--zip")
    layers = []
    for model in (whole, killed, folder / "exported", folder / "exported.zip"):
        output = folder / "layers.hdf5"
        run("elmo", heldout, output, "--all", "--force", "--options-file", model)
        with h5py.File(output) as file:
            layers.append(np.concatenate([file[str(i)][...] for i in range(100)], 1))
    assert all(np.array_equal(layers[0], others) for others in layers)
    left = [path for path in folder.rglob("*") if path.name.startswith(".")]
    assert not left, left


if __name__ == "__main__":
    embedded = ElmoEmbedder("tiny").embed_sentence("They bank at the bank .".split())
    np.testing.assert_allclose(embedded[:, -1, :4], TINY, atol=1e-5)
    with tempfile.TemporaryDirectory(prefix="a ü ") as folder:
        smoke(Path(folder))
