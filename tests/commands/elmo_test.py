"""`allennlp elmo`; tests/embedding has what it computes."""

import gzip
import io
import itertools
import json
import os
import sys
from pathlib import Path
from unittest.mock import DEFAULT, Mock, patch

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.commands import elmo as command
from allennlp_elmo_plugin.embedding import corpus_embedder
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from tests.support.testing import read_arrays, refused, write_random_elmo

SENTENCES = ["Alice saw the old mill .", "Yes .", "", "naïve ﬁsh , 1 / 2"]
LINE = "elmo text out --options-file elmo"


@pytest.fixture
def elmo(run):
    """Embed a text with a random model; return the datasets of the output."""
    write_random_elmo("elmo", seed=5)
    Path("text").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")

    def elmo(options):
        run(f"{LINE} {options}")
        return read_arrays("out")

    return elmo


@pytest.mark.parametrize(
    "state, options, select",
    [
        ("settled", "", lambda layers: layers),
        ("zero", "--top --vocab-path text", lambda layers: layers[-1]),
        ("carried", "--average --batch-size 3", lambda layers: layers.mean(axis=0)),
    ],
)
def test_layers(elmo, state, options, select):
    embedder = ElmoEmbedder("elmo", initial_state=state)
    arrays = elmo(f"{options} --initial-state {state}")
    assert set(arrays) == {"0", "1", "2", "3", "sentence_to_index"}
    vectors = embedder.embed_sentences([sentence.split() for sentence in SENTENCES], 3)
    for i, layers in enumerate(vectors):
        assert arrays[str(i)].dtype == np.float32
        np.testing.assert_allclose(arrays[str(i)], select(layers), atol=1e-6)
    mapping = {sentence: str(i) for i, sentence in enumerate(SENTENCES)}
    assert json.loads(arrays["sentence_to_index"][0]) == mapping


def test_what_is_printed_and_written(elmo, run, monkeypatch):
    monkeypatch.setattr(command, "time", Mock(monotonic=itertools.count(step=7).__next__))
    printed = run(f"{LINE} --top --forget-sentences")
    assert set(read_arrays("out")) == {"0", "1", "2", "3"}
    size = f"{os.path.getsize('out') / 1e6:,.1f} MB"
    assert printed == f"4 sentences, 14 words in 0:00:07 (2 words/s), {size}. Written to out\n"
    arrays = elmo("--top --force --include-sentence-indices --dtype float16 --compression gzip")
    assert arrays["0"].dtype == np.float16 and arrays["0"].shape == (6, 16)
    with h5py.File("out", "r") as file:
        assert file["0"].compression == "gzip"
        assert file["sentence_indices"][0] == file["sentence_to_index"][0]
    assert elmo("--top --force --pool mean")["vectors"].shape == (4, 16)
    Path("text").write_text("a b\nc\n", encoding="utf-8")
    assert set(elmo("--top --force --use-sentence-keys")) == {"a b", "c"}


def test_shards_share_an_output(elmo, run, monkeypatch):
    monkeypatch.setattr(corpus_embedder, "PART_WORDS", 2)
    line = f"{LINE} --all --num-shards 2 --shard-index"
    lacks = "This shard is complete; other shards lack 2 parts"
    assert run(line, 1) == f"4 sentences, 14 words. {lacks}\n"
    for _ in range(2):  # The second time, it is complete already.
        assert "Written to out" in run(line, 0)
    np.testing.assert_equal(read_arrays("out"), elmo("--all --force"))


def test_ctrl_c_and_resume(elmo, run, monkeypatch, capsys):
    monkeypatch.setattr(corpus_embedder, "PART_WORDS", 2)
    line = f"{LINE} --all"
    shown = f"interrupted; continue with: allennlp elmo --resume {line[5:]}"
    resume = shown.split("allennlp ")[1]
    for n_parts, args, said in ((0, line, "interrupted"), (1, line, shown), (1, resume, shown)):
        effects = [*[DEFAULT] * n_parts, KeyboardInterrupt]
        with patch.object(torch, "save", wraps=torch.save, side_effect=effects):
            with pytest.raises(SystemExit, match="130"):
                run(args)
        assert capsys.readouterr().err.splitlines()[-1] == said
    assert "--resume" in refused(capsys, *line.split())
    assert "4 sentences, 14 words, of which 8 were embedded before, in 0:00:0" in run(resume)
    np.testing.assert_equal(read_arrays("out"), elmo("--all --force"))


def test_a_pipe_and_a_log_file(elmo, run, monkeypatch):
    compressed = io.BytesIO(gzip.compress(b"a b c\nd e f\n"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(compressed))
    options = "--model elmo --file-friendly-logging"
    assert run(f"elmo - out --top {options}").startswith("2 sentences, 6 words in ")


def test_ray_gets_the_work(elmo, monkeypatch):
    """tests/embedding/ray_workers_test.py has what it does."""
    kept = []
    embed_parts = Mock(side_effect=lambda *_, **__: kept.append(os.path.exists("out.parts")))
    monkeypatch.setattr(command, "embed_parts", embed_parts)
    elmo("--all")
    ray = "--all --ray-workers 1 --gpus-per-worker 0.5"
    elmo(ray)
    assert not embed_parts.called  # It is complete.
    for how in ("--force", "--force --resume"):
        Path("out.parts").mkdir()
        elmo(f"{ray} {how} --precision bfloat16 --vocab-path text")
    paths, kwargs = embed_parts.call_args
    assert paths == ("text", "out") and kept == [False, True]
    model, options = kwargs.pop("model"), kwargs.pop("options")
    assert (model["options_file"], model["vocab_to_cache"][0]) == ("elmo", "Alice")
    assert model["precision"] == "bfloat16"
    assert (options["num_shards"], options["batch_tokens"]) == (2, 4096)
    assert kwargs == {"workers": 1, "gpus": 0.5, "packages": [], "debug": False}
