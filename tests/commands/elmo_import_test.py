import json
import re
import shutil
import sys

import h5py
import numpy as np
import pytest
import torch
from allennlp.commands import main
from allennlp.common.checks import ConfigurationError
from allennlp.models import load_archive

from allennlp_elmo_plugin.bilm.checkpoints.tensorflow_checkpoint import read_index
from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from tests.support.bilm_tf import REFERENCE, load_run, read_vocabulary, variables
from tests.support.tensorflow_checkpoint_writer import write_checkpoint
from tests.support.testing import fork, limit_file_size, read_arrays, refused

VOCABULARY = REFERENCE / "data" / "vocab.txt"
PREFIX = "model.ckpt-30"


def variables_of(folder):
    """In memory, as the files will be written again."""
    return {name: np.array(each.open()) for name, each in read_index(folder / PREFIX).items()}


@pytest.fixture
def checkpoint(tmp_path):
    """bilm-tf's own: a checkpoint, its options and, here, the vocabulary, but no weights.hdf5."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("checkpoint", "options.json"):
        shutil.copy(REFERENCE / "checkpoint" / name, folder)
    for path in (REFERENCE / "checkpoint").glob(f"{PREFIX}*"):
        shutil.copy(path, folder)
    shutil.copy(VOCABULARY, folder / "vocab.txt")
    return folder


@pytest.fixture
def published(tmp_path):
    """As ELMo models are published: options and weights."""
    folder = tmp_path / "published"
    folder.mkdir()
    options = json.loads((REFERENCE / "checkpoint" / "options_inference.json").read_text("utf-8"))
    options = {key: options[key] for key in ("lstm", "char_cnn")}
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    shutil.copy(REFERENCE / "checkpoint" / "weights.hdf5", folder)
    return folder


def edit_options(folder, edit):
    path = folder / "options.json"
    options = json.loads(path.read_text("utf-8"))
    edit(options)
    path.write_text(json.dumps(options), encoding="utf-8")


def load(output):
    archive = load_archive(output / "model.tar.gz")
    return archive.model, archive.config.as_dict(quiet=True)


def assert_equal_arrays(path, expected_path):
    found, expected = read_arrays(path), read_arrays(expected_path)
    assert set(found) == set(expected)
    for name in expected:
        assert np.array_equal(found[name], expected[name]), name


class TestCheckpoint:
    def test_to_archive_to_export_is_what_bilm_tf_dumps(self, checkpoint, tmp_path, capsys):
        import_model(checkpoint, tmp_path / "model")
        assert "50 words" in capsys.readouterr().out
        export(str(tmp_path / "model" / "model.tar.gz"), tmp_path / "elmo")
        assert_equal_arrays(
            tmp_path / "elmo" / "weights.hdf5", REFERENCE / "checkpoint" / "weights.hdf5"
        )
        _, arrays = load_run("train_charcnn")
        softmax = read_arrays(tmp_path / "elmo" / "softmax.hdf5")
        for name in "Wb":
            assert np.array_equal(softmax[f"softmax/{name}"], arrays[f"final/lm/softmax/{name}"])
        words = read_vocabulary_file(tmp_path / "elmo" / "vocab.txt")
        assert words == read_vocabulary_file(VOCABULARY)

    def test_accumulators_take_the_form_of_the_parameters(self, checkpoint, tmp_path):
        import_model(checkpoint, tmp_path / "model")
        model, _ = load(tmp_path / "model")
        _, arrays = load_run("train_charcnn")
        with h5py.File(tmp_path / "model" / "adagrad.hdf5", "r") as file:
            assert file.attrs["step"] == 30
            assert set(file) == {name for name, _ in model.named_parameters()}
            for name, parameter in model.named_parameters():
                parameter.data = torch.from_numpy(file[name][...])
                assert parameter.min() >= 1.0
        assert bool((model.bilm.token_layer._char_embedding_weights[0] == 1.0).all())
        found = dict(variables(model))
        assert {f"accum/{name}" for name in found} == {n for n in arrays if n[:6] == "accum/"}
        for name, values in found.items():
            sign = -1 if "carry" in name else 1
            assert np.array_equal(values * sign, arrays[f"accum/{name}"]), name

    def test_the_checkpoint_is_taken_where_there_are_weights_too(self, checkpoint, tmp_path):
        (checkpoint / "weights.hdf5").write_text("not read")
        import_model(checkpoint, tmp_path / "model")
        assert (tmp_path / "model" / "adagrad.hdf5").exists()

    def test_one_of_several(self, checkpoint, tmp_path):
        prefix = checkpoint / "model.ckpt-29"
        values = variables_of(checkpoint)
        values["lm/softmax/b"] += 1
        write_checkpoint(prefix, values)
        import_model(prefix, tmp_path / "model")
        model, _ = load(tmp_path / "model")
        assert np.array_equal(model.softmax.bias.detach().numpy(), values["lm/softmax/b"])

    def test_without_accumulators(self, checkpoint, tmp_path, capsys):
        values = variables_of(checkpoint)
        names = [name for name in values if "Adagrad" not in name]
        write_checkpoint(checkpoint / PREFIX, {name: values[name] for name in names})
        import_model(checkpoint, tmp_path / "model")
        assert "starts with a fresh one" in capsys.readouterr().out
        assert not (tmp_path / "model" / "adagrad.hdf5").exists()

    def test_config(self, checkpoint, tmp_path):
        import_model(checkpoint, tmp_path / "model")
        _, config = load(tmp_path / "model")
        reader = {
            "type": "truncated_bptt_lm",
            "batch_size": 4,
            "num_steps": 5,
            "max_characters_per_token": 50,
            "bidirectional": True,
        }
        assert config["dataset_reader"] == reader
        assert config["validation_dataset_reader"] == {**reader, "drop_last": False}
        assert config["data_loader"] == {"type": "truncated_bptt"}
        assert config["model"]["type"] == "bidirectional_lm"
        assert config["model"]["options"]["char_cnn"]["n_characters"] == 262


def test_force_removes_the_accumulators_of_another_model(checkpoint, published, tmp_path):
    output = tmp_path / "model"
    import_model(checkpoint, output)
    (output / "notes").touch()
    import_model(published, output, VOCABULARY, force=True)
    assert {path.name for path in output.iterdir()} == {"model.tar.gz", "notes"}


def test_full_disk(checkpoint, tmp_path):
    """Wherever it happens: in the weights, the archive or the accumulators."""
    output = tmp_path / "model"
    import_model(checkpoint, output)
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    largest = max(map(len, before.values()))

    def fill(n_bytes):
        limit_file_size(n_bytes)
        with pytest.raises(OSError, match="cannot write: File too large; nothing .*/model'"):
            import_model(checkpoint, output, force=True)

    for n_bytes in (100, 5000, largest // 2, largest - 1):
        assert fork(lambda: fill(n_bytes)) == 0  # noqa: B023
        assert {path.name: path.read_bytes() for path in output.iterdir()} == before


def test_command_and_evaluation(checkpoint, tmp_path, monkeypatch, capsys):
    (checkpoint / "vocab.txt").unlink()
    output = tmp_path / "model"
    arguments = ["elmo-import", str(checkpoint), str(output), "--vocab-file", str(VOCABULARY)]
    monkeypatch.setattr(sys, "argv", ["allennlp", *arguments])
    main()
    assert {path.name for path in output.iterdir()} == {"model.tar.gz", "adagrad.hdf5"}
    capsys.readouterr()
    assert "model is not empty; choose another output, or --force" in refused(capsys, *arguments)
    monkeypatch.setattr(sys, "argv", ["allennlp", *arguments, "--force"])
    main()
    held_out = str(REFERENCE / "data" / "test.txt")
    metrics_file = str(tmp_path / "metrics.json")
    # bilm-tf's own test, with its windows.
    reader = "validation_dataset_reader"
    overrides = json.dumps({f"{reader}.drop_last": True, f"{reader}.num_steps": 1})
    arguments = ["evaluate", str(output / "model.tar.gz"), held_out, "-o", overrides]
    monkeypatch.setattr(sys, "argv", ["allennlp", *arguments, "--output-file", metrics_file])
    main()
    with open(metrics_file, encoding="utf-8") as file:
        metrics = json.load(file)
    expected = float(load_run("train_charcnn")[1]["test4/perplexity"])
    assert metrics["perplexity"] == pytest.approx(expected, rel=1e-6)


BASE = {
    "bidirectional": True,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 3},
        "filters": [[1, 4], [3, 5]],
        "max_characters_per_token": 50,
        "n_characters": 261,
        "n_highway": 1,
    },
    "dropout": 0.1,
    "lstm": {
        "cell_clip": 3,
        "dim": 7,
        "n_layers": 2,
        "proj_clip": 3,
        "projection_dim": 5,
        "use_skip_connections": True,
    },
    "n_negative_samples_batch": 12,
    "n_tokens_vocab": 50,
    "unroll_steps": 6,
}


def variant(**changes):
    options = json.loads(json.dumps(BASE))
    for key, value in changes.items():
        if isinstance(value, dict):
            options[key].update(value)
        elif value is None:
            del options[key]
        else:
            options[key] = value
    return options


VARIANTS = {
    "characters": variant(),
    "characters of prediction": variant(char_cnn={"n_characters": 262}),
    "two highway layers, tanh": variant(char_cnn={"n_highway": 2, "activation": "tanh"}),
    "no highway layer": variant(char_cnn={"n_highway": 0}),
    "no projection of characters": variant(char_cnn={"filters": [[1, 2], [2, 3]]}),
    "no projection": variant(lstm={"dim": 5}),
    "one layer": variant(lstm={"n_layers": 1}),
    "three layers": variant(lstm={"n_layers": 3}),
    "other width of words": variant(char_cnn={"max_characters_per_token": 30}),
    "forward only": variant(bidirectional=False),
    "forward only, one layer": variant(bidirectional=False, lstm={"n_layers": 1}),
    "tokens": variant(char_cnn=None),
    "tied": variant(char_cnn=None, share_embedding_softmax=True),
    "tied, forward only": variant(char_cnn=None, share_embedding_softmax=True, bidirectional=False),
}


def tensorflow_name(name, options):
    """bilm-tf names the variables of some models in its own way."""
    if options["lstm"]["n_layers"] == 1:
        name = name.replace("multi_rnn_cell/cell_0/", "")
    if not options["bidirectional"]:
        name = name.replace("RNN_0/", "")
    return name


@pytest.fixture
def saved(tmp_path):
    """Saves a random model as bilm-tf saves its own; gives the folder and the model."""

    def save(options):
        torch.manual_seed(0)
        model = BidirectionalLanguageModel(read_vocabulary(tmp_path / "words"), options=options)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        if "char_cnn" in options:
            model.bilm.token_layer._char_embedding_weights.data[0] = 0.0
        folder = tmp_path / "saved"
        folder.mkdir()
        arrays = {"global_step": np.array(3, "int64")}
        for i, (name, values) in enumerate(variables(model)):
            if name == "lm/softmax/W" and options.get("share_embedding_softmax"):
                continue
            name = tensorflow_name(name, options)
            arrays[name] = values.copy()
            arrays[f"{name}/Adagrad"] = np.full(values.shape, 2.0 + i, "float32")
        write_checkpoint(folder / "model.ckpt-3", arrays, n_shards=2)
        (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
        shutil.copy(VOCABULARY, folder / "vocab-2016.txt")
        return folder, model

    return save


def assert_same_model(output, model):
    imported, _ = load(output)
    expected = dict(model.named_parameters())
    assert set(dict(imported.named_parameters())) == set(expected)
    for name, parameter in imported.named_parameters():
        assert torch.equal(parameter, expected[name]), name
    ours, theirs = imported.options.to_dict(), model.options.to_dict()
    assert ours == theirs


class TestVariants:
    @pytest.mark.parametrize("name", VARIANTS)
    def test_round_trip(self, name, saved, tmp_path):
        folder, model = saved(VARIANTS[name])
        import_model(folder, tmp_path / "model")
        assert_same_model(tmp_path / "model", model)
        with h5py.File(tmp_path / "model" / "adagrad.hdf5", "r") as file:
            assert set(file) == {key for key, _ in model.named_parameters()}
            assert file.attrs["step"] == 3
        # What elmo-export makes of it is imported in turn, from the published layout.
        export(str(tmp_path / "model" / "model.tar.gz"), tmp_path / "elmo")
        import_model(tmp_path / "elmo", tmp_path / "again")
        assert_same_model(tmp_path / "again", model)
        assert not (tmp_path / "again" / "adagrad.hdf5").exists()

    @pytest.mark.parametrize("name", VARIANTS)
    def test_options_that_say_little(self, name, saved, tmp_path):
        """Whether there are two directions and how many words is taken from the variables."""
        folder, model = saved(VARIANTS[name])

        def strip(options):
            for key in ("bidirectional", "n_tokens_vocab"):
                options.pop(key, None)
            if "softmax/W" not in dict(variables(model)):
                options.pop("share_embedding_softmax", None)

        edit_options(folder, strip)
        import_model(folder, tmp_path / "model")
        assert_same_model(tmp_path / "model", model)

    def test_names_that_bilm_tf_dumps(self, saved, tmp_path):
        """Its weights.hdf5 of small models has names that its own readers don't find."""
        options = VARIANTS["forward only, one layer"]
        folder, model = saved(options)
        with h5py.File(folder / "weights.hdf5", "w") as file:
            for name, values in variables(model):
                if "softmax" not in name:
                    name = tensorflow_name(name, options).replace("lm/", "")
                    file[name.replace("lstm_cell", "LSTMCell")] = values
        for path in folder.glob("model.ckpt*"):
            path.unlink()
        import_model(folder, tmp_path / "model")
        imported, _ = load(tmp_path / "model")
        for (name, found), expected in zip(
            imported.bilm.named_parameters(), model.bilm.parameters()
        ):
            assert torch.equal(found, expected), name

    @pytest.mark.parametrize(
        "name, edit, message",
        [
            ("characters", {"lstm": {"n_layers": 1}}, "has the variable 'RNN_0.*Cell1"),
            ("characters", {"lstm": {"n_layers": 3}}, "the variable 'RNN_0.*Cell2.*' is missing"),
            ("characters", {"lstm": {"dim": 6}}, "RNN_0.*W_0' has shape"),
            ("characters", {"lstm": {"dim": "7"}}, "lstm.dim. must be a whole number"),
            ("characters", {"bidirectional": False}, "has the variable 'RNN_1"),
            ("forward only", {"bidirectional": True}, "the variable 'RNN_1.*' is missing"),
            ("characters", {"char_cnn": None}, "'embedding' is missing"),
            ("characters", {"char_cnn": {"n_highway": 0}}, "has the variable 'CNN_high_0"),
            ("characters", {"char_cnn": {"n_characters": 300}}, 'n_characters" must be 261'),
            ("tokens", {"char_cnn": BASE["char_cnn"]}, "'char_embed' is missing"),
            ("tokens", {"lstm": []}, '"lstm" must be a JSON object'),
        ],
    )
    def test_options_and_variables_that_contradict(self, name, edit, message, saved, tmp_path):
        folder, _ = saved(VARIANTS[name])

        def apply(options):
            for key, value in edit.items():
                if value is None:
                    del options[key]
                elif isinstance(value, dict) and key in options:
                    options[key].update(value)
                else:
                    options[key] = value

        edit_options(folder, apply)
        with pytest.raises(ConfigurationError, match=message):
            import_model(folder, tmp_path / "model")
        assert not (tmp_path / "model").exists()


class TestPublishedWeights:
    def test_softmax_starts_fresh(self, published, tmp_path, capsys):
        words = tmp_path / "words.txt"
        words.write_text("<S>\n</S>\n<UNK>\nthe\n,\nnaïve\n", encoding="utf-8")
        import_model(published, tmp_path / "model", words)
        out = capsys.readouterr().out
        assert "no softmax (softmax.hdf5) to import: it starts from random values" in out
        assert "no state of Adagrad" in out
        model, config = load(tmp_path / "model")
        assert model.softmax.weight.shape == (6, 8)
        assert model.options.n_tokens_vocab == 6
        # bilm-tf's default of samples is more than there are words.
        assert model.softmax.sampler is None
        assert config["dataset_reader"]["batch_size"] == 128
        assert config["dataset_reader"]["num_steps"] == 20
        export(str(tmp_path / "model" / "model.tar.gz"), tmp_path / "elmo")
        assert_equal_arrays(tmp_path / "elmo" / "weights.hdf5", published / "weights.hdf5")

    def test_options_of_another_vocabulary(self, published, tmp_path):
        edit_options(published, lambda options: options.update(n_tokens_vocab=793471))
        import_model(published, tmp_path / "model", VOCABULARY)
        assert load(tmp_path / "model")[0].options.n_tokens_vocab == 50

    def test_needs_a_vocabulary(self, published, tmp_path):
        message = "has no vocabulary; give with --vocab-file the one for the new softmax"
        with pytest.raises(ConfigurationError, match=message):
            import_model(published, tmp_path / "model")

    def test_tied_softmax_without_its_bias(self, saved, tmp_path, capsys):
        folder, model = saved(VARIANTS["tied"])
        import_model(folder, tmp_path / "model")
        export(str(tmp_path / "model" / "model.tar.gz"), tmp_path / "elmo")
        (tmp_path / "elmo" / "softmax.hdf5").unlink()
        import_model(tmp_path / "elmo", tmp_path / "again")
        assert "its bias starts at zero" in capsys.readouterr().out
        imported, _ = load(tmp_path / "again")
        assert torch.equal(imported.softmax.weight, model.bilm.token_layer.weight)
        assert not imported.softmax.bias.any()


class TestVocabulary:
    @pytest.mark.parametrize("name", ["vocabulary/lm_tokens.txt", "vocab-2016-09-10.txt"])
    def test_is_found(self, checkpoint, tmp_path, name):
        (checkpoint / "vocabulary").mkdir()
        (checkpoint / "vocab.txt").rename(checkpoint / name)
        import_model(checkpoint, tmp_path / "model")
        assert (tmp_path / "model" / "model.tar.gz").exists()

    def test_several(self, checkpoint, tmp_path):
        for name in ("vocab-a.txt", "vocab-b.txt"):
            shutil.copy(VOCABULARY, checkpoint / name)
        # The one of this very name is meant.
        import_model(checkpoint, tmp_path / "model")
        (checkpoint / "vocab.txt").unlink()
        message = r"has \['vocab-a.txt', 'vocab-b.txt'\]; give with --vocab-file .* 50 words"
        with pytest.raises(ConfigurationError, match=message):
            import_model(checkpoint, tmp_path / "other")

    def test_missing(self, checkpoint, tmp_path):
        with pytest.raises(ConfigurationError, match="nothing.txt: there is no such vocabulary"):
            import_model(checkpoint, tmp_path / "model", tmp_path / "nothing.txt")
        (checkpoint / "vocab.txt").unlink()
        with pytest.raises(ConfigurationError, match="no vocabulary; give with --vocab-file"):
            import_model(checkpoint, tmp_path / "model")

    @pytest.mark.parametrize(
        "content, message",
        [
            (b"<S>\n</S>\n<UNK>\nthe\n", "has 4 words, but the model in .* has 50"),
            (b"<S>\n</S>\n<UNK>\ncaf\xe9\n", "line 4: byte 0xe9 is not UTF-8"),
            (b"<S>\n</S>\nthe\n", "special words <UNK> are missing"),
            (b"<S>\n</S>\n<UNK>\nthe\nthe\n", "line 5: 'the' is there twice"),
        ],
    )
    def test_bad(self, checkpoint, tmp_path, content, message):
        path = tmp_path / "words.txt"
        path.write_bytes(content)
        with pytest.raises(ConfigurationError, match=f"words.txt.*{message}"):
            import_model(checkpoint, tmp_path / "model", path)
        assert not (tmp_path / "model").exists()


class TestBadInput:
    def fails(self, source, tmp_path, message):
        with pytest.raises(ConfigurationError, match=message):
            import_model(source, tmp_path / "model", VOCABULARY)
        # Nothing is left behind, not even of the work.
        assert not (tmp_path / "model").exists()

    def test_no_model(self, tmp_path):
        self.fails(tmp_path / "nothing", tmp_path, "there is no .*nothing;")
        (tmp_path / "empty").mkdir()
        self.fails(tmp_path / "empty", tmp_path, "there is no weights.hdf5; a model is")

    def test_no_options(self, checkpoint, published, tmp_path):
        for folder in (checkpoint, published):
            (folder / "options.json").unlink()
            self.fails(folder, tmp_path, "options.json: there is no such file; bilm-tf writes it")

    @pytest.mark.parametrize("content, message", [("[]", "JSON object"), ("{", "not a JSON")])
    def test_bad_options(self, checkpoint, tmp_path, content, message):
        (checkpoint / "options.json").write_text(content)
        self.fails(checkpoint, tmp_path, f"options.json: .*{message}")

    @pytest.mark.parametrize("part", ["index", "data-00000-of-00001"])
    def test_checkpoint_cut_off_damaged_or_missing(self, checkpoint, tmp_path, part):
        path = checkpoint / f"{PREFIX}.{part}"
        sound = path.read_bytes()
        path.write_bytes(sound[: len(sound) // 2])
        self.fails(checkpoint, tmp_path, f"{re.escape(path.name)}: .*cut off")
        path.write_bytes(sound[:1000] + b"wrong" + sound[1005:])
        self.fails(checkpoint, tmp_path, f"{re.escape(path.name)}: .*damaged")
        path.unlink()
        self.fails(checkpoint, tmp_path, f"names '{PREFIX}'; of TensorFlow")

    def test_weights_cut_off_or_no_hdf5(self, published, tmp_path):
        path = published / "weights.hdf5"
        for content in (path.read_bytes()[:20_000], b"text", b""):
            path.write_bytes(content)
            self.fails(published, tmp_path, "weights.hdf5: not an HDF5 file, or one cut off")

    def test_softmax_of_another_model(self, published, tmp_path):
        with h5py.File(published / "softmax.hdf5", "w") as file:
            file["softmax/W"] = np.zeros((50, 9), "float32")
            file["softmax/b"] = np.zeros(50, "float32")
        self.fails(published, tmp_path, r"'softmax/W' has shape \(50, 9\), but .* \(50, 8\)")

    @pytest.mark.parametrize("name", ["lm/softmax/W", "lm/char_embed", "lm/softmax/b/Adagrad"])
    def test_values_not_finite(self, checkpoint, tmp_path, name):
        values = variables_of(checkpoint)
        values[name].flat[7] = np.nan
        write_checkpoint(checkpoint / PREFIX, values)
        self.fails(checkpoint, tmp_path, "contains NaN or infinity")

    def test_another_checkpoint(self, checkpoint, tmp_path):
        write_checkpoint(checkpoint / PREFIX, {"w": np.zeros(3, "float32")})
        self.fails(checkpoint, tmp_path, "the variable '.*' is missing, or has no floating-point")

    def test_output(self, checkpoint, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(ValueError, match="is a file, not a folder"):
            import_model(checkpoint, tmp_path / "file")
