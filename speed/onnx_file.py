"""Speed of embedding: `ElmoEmbedder` against ONNX Runtime with the model's ONNX file."""

import contextlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from onnxruntime import InferenceSession, SessionOptions

from allennlp_elmo_plugin import ElmoEmbedder, batch_to_ids
from allennlp_elmo_plugin.commands.elmo_export import export
from speed.report import Row, take_turns
from speed.workload import Corpus

_SENTENCES = {"one sentence": 1, "32 sentences": 32}
_N_WORDS = 22  # of each sentence, so that nothing is padding


def measure(model: str, size: str, rounds: int, select: Callable[[str], Any]) -> Iterator[Row]:
    """
    Measure a model with one and with two threads. Both programs start from words; this package has
    seen all of them before, as in a program that runs for long.
    """
    names = {
        f"{name} beside ONNX Runtime, {threads} thread{'s' * (threads > 1)}": (n, threads)
        for name, n in _SENTENCES.items()
        for threads in (1, 2)
    }
    if not any(map(select, names)):
        return
    embedder, before = ElmoEmbedder(model), torch.get_num_threads()
    text = [words[:_N_WORDS] for words in Corpus().sentences(2000) if len(words) >= _N_WORDS]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        with contextlib.redirect_stdout(io.StringIO()):
            export(model, path)
        for name, (n, threads) in names.items():
            if not select(name):
                continue
            torch.set_num_threads(threads)
            options = SessionOptions()
            options.intra_op_num_threads = threads
            session = InferenceSession(path, options)

            def run(batch: list[list[str]], session: InferenceSession = session) -> Any:
                return session.run(None, {"character_ids": batch_to_ids(batch).numpy()})[0]

            # As many words in each turn, whatever the size of the batch
            batches = [text[i : i + n] for i in range(0, 32, n)]
            for ours, theirs in zip(embedder.embed_batch(text[:32]), run(text[:32]).swapaxes(0, 1)):
                if (largest := abs(ours - theirs).max()) > 2e-5:
                    raise AssertionError(f"{name}: results differ by {largest}")
            seconds = take_turns(
                {
                    "ours": lambda batches: [embedder.embed_batch(batch) for batch in batches],
                    "ONNX Runtime": lambda batches: [run(batch) for batch in batches],
                },
                [batches] * (1 + rounds),
            )
            n_words = 32 * _N_WORDS
            yield Row(
                workload=name,
                size=size,
                value=seconds["ONNX Runtime"] / seconds["ours"],
                words_per_second=n_words / seconds["ours"],
                note=f"ONNX Runtime: {n_words / seconds['ONNX Runtime']:,.0f} words/s",
            )
    torch.set_num_threads(before)
