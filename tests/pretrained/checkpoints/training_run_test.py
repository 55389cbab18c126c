"""config.json of a language model's archive is read as data, whatever it names."""

import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from allennlp_elmo_plugin.bilm.options import BiLmOptions, set_options
from allennlp_elmo_plugin.pretrained.checkpoints import training_run
from allennlp_elmo_plugin.pretrained.checkpoints.training_run import archived_options

OPTIONS = {"lstm": {"dim": 7, "projection_dim": 5}}
PROGRAM = {"type": "subprocess.Popen", "args": ["touch", "ran"]}
"""What AllenNLP constructs from this is a running program."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def write(run, **model):
    content = json.dumps({"model": {"type": "bidirectional_lm", **model}})
    (run / "config.json").write_text(content, encoding="utf-8")


def fails(run, message):
    with pytest.raises(ValueError, match=message) as error:
        archived_options(run, 9)
    assert str(run) in str(error.value) and str(error.value).isprintable()
    assert not Path("ran").exists()


EXPECTED = BiLmOptions.from_dict({**OPTIONS, "n_tokens_vocab": 9})


def test_options_and_arguments_of_the_config(run):
    write(run, options=OPTIONS, dropout=0.3, num_samples=5, initializer=PROGRAM)
    changes = {"dropout": 0.3, "n_negative_samples_batch": 5}
    assert archived_options(run, 9) == replace(EXPECTED, **changes)
    write(run, options={**OPTIONS, "dropout": 2})
    fails(run, 'config.json, model.options: "dropout" must be')
    write(run, options="text")
    fails(run, '"model.options" must be a JSON object')


@pytest.mark.parametrize(
    "text",
    [
        'local x = importstr "/etc/passwd"; {"model": x}',
        '{"model": 1, "model": 2}',
        "[" * 100_000,
        *(json.dumps({"model": model}) for model in (PROGRAM, "bidirectional_lm", None, [])),
        json.dumps({"model": {"type": ["bidirectional_lm"]}}),
        json.dumps({"model": {"type": "from_archive", "archive_file": PROGRAM}}),
    ],
)
def test_the_config_is_json_of_a_language_model(text, run):
    (run / "config.json").write_text(text, encoding="utf-8")
    messages = ".*; only the archive of a bidirectional_lm", "the model is of the type", '"model'
    fails(run, f"config.json: ({'|'.join(messages)})")
    write(run, type="bidirectional-language-model")
    fails(run, "as AllenNLP's transformer ELMo: use its bidirectional_lm_token_embedder")


def test_options_file(run, monkeypatch):
    """A file here is read as options; of addresses, only those of published models are followed."""
    downloads = []
    own = run / "options.json"
    monkeypatch.setattr(training_run, "cached_path", lambda name: downloads.append(name) or own)
    os.mkfifo("pipe")
    for name in ("/dev/zero", "pipe", "http://127.0.0.1:9/x", "hf://a/b", str(own), PROGRAM, None):
        write(run, options_file=name)
        fails(run, '"model.options_file" is .*, which is not a file here.*"include_in_archive"')
    own.write_text(json.dumps(OPTIONS), encoding="utf-8")
    # Whoever wrote the working folder may have put a path of this name there.
    Path("http:/127.0.0.1:9").mkdir(parents=True)
    Path("http:/127.0.0.1:9/there").write_bytes(own.read_bytes())
    for name in (str(own), "http://127.0.0.1:9/x", "http://127.0.0.1:9/there", None):
        write(run, options_file=name)
        assert archived_options(run, 9) == EXPECTED and not downloads
    address = f"{training_run.PUBLISHED_ADDRESS}x/options.json"
    write(run, options_file=address)
    assert archived_options(run, 9) == EXPECTED and downloads == [address]
    own.write_text("text", encoding="utf-8")
    fails(run, "options.json: not a JSON file")


def test_a_run_that_started_from_an_archive(run, tmp_path):
    write(run, options=OPTIONS)
    with tarfile.open("origin.tar.gz", "w:gz") as archive:
        archive.add(run / "config.json", "config.json")
    write(run, type="from_archive", archive_file=str(tmp_path / "origin.tar.gz"))
    assert archived_options(run, 9) == EXPECTED
    for origin, message in ((str(run), ""), ("/nowhere", "'/nowhere' is not there; put it there")):
        write(run, type="from_archive", archive_file=origin)
        fails(run, f'"model.archive_file" must be the archive .*{message}')
    for key, values in (("archive_file", {"type": "from_archive"}), ("options_file", {})):
        write(run, **values, **{key: "//server/share/x"})
        fails(run, f'"model.{key}" is .*, on another computer')


def test_arguments_change_the_options():
    full, sampled = {"sample_softmax": False}, {"sample_softmax": True}
    options = {"share_embedding_softmax": True, "dropout": 0.0}
    for arguments, n_words, changes in (
        ({**options, "bidirectional": None, "options": 3}, 5, options),
        ({"bidirectional": False}, 5, {"bidirectional": False}),
        ({"num_samples": 20}, 5, {**sampled, "n_negative_samples_batch": 20}),
        ({"num_samples": 0}, 5, full),
        ({"num_samples": "auto"}, 16383, full),
        ({"num_samples": "auto"}, 16384, {**sampled, "n_negative_samples_batch": 8192}),
    ):
        values = {"dropout": 0.1}
        set_options(values, arguments, n_words)
        assert values == {"dropout": 0.1, **changes}
    for wrong in (PROGRAM, "some", True, 1.5):
        with pytest.raises(
            ValueError, match='here: "num_samples" must be a whole number from 0 or'
        ):
            set_options({}, {"num_samples": wrong}, 5, "here")
