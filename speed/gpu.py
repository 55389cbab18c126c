"""
Speed of embedding and training on a GPU, and of a whole file. First checks that the numbers are
those of the CPU. If AllenNLP is installed, also measures embedding with its module.

```
python -m speed.gpu
```
"""

import argparse
import importlib.util
import io
import tempfile
import time
from typing import Any

import torch

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.bilm.characters import sentences_to_character_ids
from speed.report import take_turns
from speed.workload import (
    NUM_STEPS,
    Batch,
    Corpus,
    OurTraining,
    character_ids,
    make_batch,
    random_model,
    write_model,
)

BATCH_SIZES = (1, 32, 128)
_TRAINING_ROWS = 64
_FILES = {
    "top": {"output_format": "top"},
    "all": {"output_format": "all"},
    "pooled": {"output_format": "top", "pooling": "mean"},
}
FILE_SENTENCES = 9_000  # 200,000 words
_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05}  # A GPU sums in another order.


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m speed.gpu", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each workload (default 5)")
    parser.add_argument("--sizes", default="small,original", help="models (default small,original)")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("torch finds no GPU")
    print(f"GPU: {torch.cuda.get_device_name()}; torch {torch.__version__}")
    # By default, torch lets convolutions round their inputs to 10 bits.
    torch.backends.cudnn.allow_tf32 = False
    for size in args.sizes.split(","):
        print("\n| embedding, sentences | model | precision | words/s | AllenNLP's | ratio |")
        print("|---|---|---|---|---|---|")
        for precision in _TOLERANCE:
            for batch_size in BATCH_SIZES:
                row = _embedding(size, precision, batch_size, args.rounds)
                print(f"| {batch_size} | {size} | {precision} | {row} |", flush=True)
        print("\n| training, rows | model | precision | words/s | peak GB |\n|---|---|---|---|---|")
        for precision in _TOLERANCE:
            row = _training(size, precision, args.rounds)
            print(f"| {_TRAINING_ROWS} | {size} | {precision} | {row} |", flush=True)
        print("\n| embed_file, layers | model | precision | words/s |\n|---|---|---|---|")
        for precision in _TOLERANCE:
            for name, options in _FILES.items():
                speed = _file(size, precision, options)
                print(f"| {name} | {size} | {precision} | {speed:,.0f} |", flush=True)


@torch.no_grad()
def _embedding(size: str, precision: str, batch_size: int, rounds: int) -> str:
    batches = Corpus().batches(rounds + 1, batch_size)
    lengths = [[len(words) + 2 for words in batch] for batch in batches]
    model = random_model(size).eval()
    model.set_precision(precision)
    expected = model(character_ids(batches[0]), lengths[0]).unpack(2)
    model.cuda()
    ids = [character_ids(batch).cuda() for batch in batches]
    _check(model(ids[0], lengths[0]).unpack(2), expected, precision)

    def ours(i: int) -> None:
        model(ids[i], lengths[i]).unpack(2)
        torch.cuda.synchronize()

    programs = {"ours": ours}
    if importlib.util.find_spec("allennlp") is not None:
        from speed.original import ElmoBiLm

        with tempfile.TemporaryDirectory() as folder:
            other = ElmoBiLm(*write_model(size, folder)).eval().cuda()
        # It adds the boundaries itself.
        inner = [torch.from_numpy(sentences_to_character_ids(batch)).cuda() for batch in batches]
        _check(other(inner[0])["activations"][2], expected, precision)

        def theirs(i: int) -> None:
            other(inner[i])
            torch.cuda.synchronize()

        programs["AllenNLP"] = theirs
    seconds = take_turns(programs, range(len(batches)))
    n_words = sum(len(words) for batch in batches[1:] for words in batch) / rounds
    cells = [f"{n_words / each:,.0f}" for each in seconds.values()]
    if len(cells) > 1:
        cells.append(f"{seconds['AllenNLP'] / seconds['ours']:.2f}")
    return " | ".join([*cells, "", ""][:3])


def _training(size: str, precision: str, rounds: int) -> str:
    n_words, n_samples = (2_000, 64) if size == "tiny" else (100_000, 8_192)
    batches = [make_batch(Corpus(), n_words, _TRAINING_ROWS) for _ in range(rounds + 1)]
    training = OurTraining(size, n_words, n_samples, precision)
    samples = training.softmax.sampler.sample()
    expected = training.loss(batches[0], samples)
    training.cuda()
    on_gpu = [Batch(*(each.cuda() for each in batch)) for batch in batches]
    _check(training.loss(on_gpu[0], samples), expected, precision)
    torch.cuda.reset_peak_memory_stats()

    def step(batch: Batch) -> None:
        training.step(batch)
        torch.cuda.synchronize()

    seconds = take_turns({"step": step}, on_gpu)["step"]
    speed = _TRAINING_ROWS * NUM_STEPS / seconds
    return f"{speed:,.0f} | {torch.cuda.max_memory_allocated() / 1e9:.2f}"


def _file(size: str, precision: str, options: dict[str, Any]) -> float:
    """Return the words/s of the wall, from a file to a file, of the second of two runs."""
    text = [" ".join(words) for words in Corpus().sentences(FILE_SENTENCES)]
    with tempfile.TemporaryDirectory() as folder:
        embedder = ElmoEmbedder(*write_model(size, folder), 0, precision=precision)
        for _ in range(2):
            start = time.perf_counter()
            file, output = io.StringIO("\n".join(text)), f"{folder}/layers.hdf5"
            made = embedder.embed_file(file, output, batch_size=None, overwrite=True, **options)
            seconds = time.perf_counter() - start
    return made["tokens"] / seconds


def _check(actual: torch.Tensor, expected: torch.Tensor, precision: str) -> None:
    tolerance = _TOLERANCE[precision]
    torch.testing.assert_close(actual.cpu(), expected, rtol=tolerance, atol=tolerance)


if __name__ == "__main__":
    main()
