"""`allennlp elmo`; tests/embedding has what it computes."""

import gzip
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, List

import h5py
import numpy as np
import pytest
from allennlp.common import logging as common_logging

from allennlp_elmo_plugin.commands import elmo as command
from allennlp_elmo_plugin.embedding import corpus_embedder
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from tests.support.testing import read_arrays, refused, write_random_elmo

SENTENCES = ["Alice saw the old mill .", "Yes .", "", "naïve ﬁsh , 1 / 2"]


@pytest.fixture
def elmo(run: Any) -> Any:
    """Embed a text with a random model; return the datasets of the output."""
    Path("elmo").mkdir()
    write_random_elmo("elmo", seed=5)
    Path("text").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")

    def elmo(line: str, text: str = "text") -> Any:
        elmo.printed = run(f"elmo {text} out --options-file elmo {line}")  # type: ignore
        return read_arrays("out")

    return elmo


def expected(initial_state: str = "settled", batch_size: int = 64) -> List[Any]:
    embedder = ElmoEmbedder("elmo", initial_state=initial_state)
    return list(embedder.embed_sentences([each.split() for each in SENTENCES], batch_size))


@pytest.mark.parametrize("initial_state", ["carried", "settled", "zero"])
def test_layers(elmo: Any, initial_state: str) -> None:
    vectors = expected(initial_state, 3)
    for flag, select in (
        ("--all", lambda layers: layers),
        ("--top", lambda layers: layers[-1]),
        ("--average", lambda layers: layers.mean(axis=0)),
    ):
        arrays = elmo(f"{flag} --batch-size 3 --initial-state {initial_state} --force")
        assert set(arrays) == {"0", "1", "2", "3", "sentence_to_index"}
        for i, layers in enumerate(vectors):
            assert arrays[str(i)].dtype == np.float32
            np.testing.assert_allclose(arrays[str(i)], select(layers), atol=1e-6)
        mapping = {sentence: str(i) for i, sentence in enumerate(SENTENCES)}
        assert json.loads(arrays["sentence_to_index"][0]) == mapping


def test_what_it_prints(elmo: Any) -> None:
    elmo("--top")
    size = os.path.getsize("out") / 1e6
    shown = (
        rf"4 sentences, 14 words in 0:00:0\d \([\d,]+ words/s\), {size:,.1f} MB. Written to out\n"
    )
    assert re.fullmatch(shown, elmo.printed)
    seconds = 14 / float(re.findall(r"\(([\d,]+) words", elmo.printed)[0].replace(",", ""))
    assert 0 < seconds < 10


def test_what_is_written(elmo: Any) -> None:
    assert set(elmo("--top --forget-sentences")) == {"0", "1", "2", "3"}
    arrays = elmo("--top --force --include-sentence-indices --dtype float16 --compression gzip")
    assert arrays["0"].dtype == np.float16 and arrays["0"].shape == (6, 16)
    with h5py.File("out", "r") as file:
        assert file["0"].compression == "gzip"
        assert file["sentence_indices"][0] == file["sentence_to_index"][0]
    Path("two").write_text("a b\nc\n", encoding="utf-8")
    assert set(elmo("--top --force --use-sentence-keys", "two")) == {"a b", "c"}


def test_words_that_are_encoded_in_advance_change_nothing(elmo: Any) -> None:
    Path("words").write_text("\n".join(sorted({*" ".join(SENTENCES).split()})), encoding="utf-8")
    plain = elmo("--all --precision float32")
    cached = elmo("--all --force --vocab-path words")
    for name in "0123":
        np.testing.assert_allclose(cached[name], plain[name], atol=1e-5)


def test_bfloat16_is_near(elmo: Any) -> None:
    exact, near = elmo("--all"), elmo("--all --force --precision bfloat16")
    difference = np.abs(exact["0"] - near["0"]).max()
    assert 0 < difference < 0.05


def test_shards_share_an_output(elmo: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_embedder, "PART_WORDS", 2)
    line = "elmo text out --all --options-file elmo --num-shards 2 --shard-index"
    assert run(line, 1) == (
        "4 sentences, 14 words. This shard is complete; out.parts lacks 2 parts of other shards\n"
    )
    assert "Written to out" in run(line, 0)
    for i, layers in enumerate(expected()):
        np.testing.assert_allclose(read_arrays("out")[str(i)], layers, atol=1e-6)
    assert "Written to out" in run(line, 0)  # It is complete already.


def test_ctrl_c_and_resume(
    elmo: Any, run: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(corpus_embedder, "PART_WORDS", 2)
    line = "elmo text out --all --options-file elmo"

    def stop_after(n_parts: int) -> str:
        write, calls = corpus_embedder.PartsFolder.write, []

        def killed(self: Any, number: int, part: Any) -> None:
            if len(calls) == n_parts:
                raise KeyboardInterrupt
            calls.append(number)
            write(self, number, part)

        with monkeypatch.context() as patch, pytest.raises(SystemExit) as raised:
            patch.setattr(corpus_embedder.PartsFolder, "write", killed)
            run(line)
        assert raised.value.code == 130
        return capsys.readouterr().err.splitlines()[-1]

    assert stop_after(0) == "interrupted"
    shown = stop_after(1)
    assert shown == f"interrupted; continue with: allennlp elmo --resume {line[5:]}"
    assert "--resume" in refused(capsys, *line.split())
    run(shown.split("allennlp ")[1])
    resumed = read_arrays("out")
    run(f"{line} --force")
    for name, array in read_arrays("out").items():
        assert np.array_equal(resumed[name], array)


def test_a_pipe(elmo: Any, run: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    compressed = io.BytesIO(gzip.compress(b"a b c\nd e f\n"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(compressed))
    assert run("elmo - out --top --options-file elmo").startswith("2 sentences, 6 words in ")


def test_file_friendly_logging_and_packages(elmo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("user_package.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(".")
    elmo("--top --file-friendly-logging --include-package user_package")
    assert common_logging.FILE_FRIENDLY_LOGGING and "user_package" in sys.modules


def test_ray_gets_the_work(elmo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/embedding/ray_workers_test.py has what it does."""
    calls: List[Any] = []
    monkeypatch.setattr(command, "import_ray", lambda: None)
    monkeypatch.setattr(
        command, "embed_parts", lambda *paths, **given: calls.append((paths, given))
    )
    ray = "--all --ray-workers 2 --num-shards 4 --gpus-per-worker 0.5"
    elmo("--all")
    elmo(ray)
    assert not calls  # It is complete.
    elmo(f"{ray} --force")
    ((paths, given),) = calls
    assert paths == ("text", "out")
    assert given.pop("model")["options_file"] == "elmo"
    assert given.pop("options")["num_shards"] == 4
    assert given == {"workers": 2, "gpus": 0.5, "packages": [], "debug": False}


@pytest.mark.nightly
def test_in_a_process_of_its_own_whatever_the_locale(
    elmo: Any, subprocess_environment: Any
) -> None:
    environment = {**subprocess_environment, "LC_ALL": "C"}
    environment.update(PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    Path(".allennlp_plugins").write_text("allennlp_elmo_plugin\n", encoding="utf-8")
    line = "-m allennlp elmo text out --top --options-file elmo"
    subprocess.run([sys.executable, *line.split()], env=environment, check=True)
    with h5py.File("out", "r") as file:
        assert json.loads(file["sentence_to_index"][0])["naïve ﬁsh , 1 / 2"] == "3"
