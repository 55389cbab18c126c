import copy
import json

import pytest

from allennlp_elmo_plugin.bilm.options import BiLmOptions

OPTIONS = {
    "bidirectional": True,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 8]],
        "max_characters_per_token": 50,
        "n_characters": 261,
        "n_highway": 1,
    },
    "dropout": 0.1,
    "lstm": {
        "cell_clip": 3,
        "dim": 16,
        "n_layers": 2,
        "proj_clip": 3,
        "projection_dim": 8,
        "use_skip_connections": True,
    },
    "all_clip_norm_val": 10.0,
    "n_tokens_vocab": 50,
    "unroll_steps": 20,
}


def changed(path, value):
    options = copy.deepcopy(OPTIONS)
    section = options
    *names, last = path.split(".")
    for name in names:
        section = section[name]
    if value is None:
        del section[last]
    else:
        section[last] = value
    return options


def test_reads_and_writes_what_bilm_tf_writes(tmp_path):
    options = BiLmOptions.from_dict(OPTIONS)
    assert (options.lstm_dim, options.projection_dim, options.n_layers) == (16, 8, 2)
    assert (options.cell_clip, options.proj_clip, options.dropout) == (3.0, 3.0, 0.1)
    assert options.char_cnn.n_filters == 12
    options.write(tmp_path / "options.json")
    assert BiLmOptions.from_file(tmp_path / "options.json") == options
    written = json.loads((tmp_path / "options.json").read_text())
    assert written["char_cnn"].pop("n_characters") == 262
    expected = copy.deepcopy(OPTIONS)
    expected["char_cnn"].pop("n_characters")
    assert {key: written[key] for key in expected} == expected


def test_missing_keys_mean_bilm_tfs_defaults():
    options = BiLmOptions.from_dict({"lstm": {"dim": 8, "projection_dim": 8}})
    assert options.n_layers == 1 and not options.use_skip_connections
    assert options.cell_clip is None and options.proj_clip is None
    assert BiLmOptions.from_dict(changed("char_cnn.n_highway", None)).char_cnn.n_highway == 0


def test_published_options_are_bidirectional_and_training_options_say_so():
    training = changed("bidirectional", None)
    assert not BiLmOptions.from_dict(training).bidirectional
    del training["unroll_steps"]
    assert BiLmOptions.from_dict(training).bidirectional


@pytest.mark.parametrize(
    "path, value, message",
    [
        ("lstm", None, '"lstm" is missing'),
        ("lstm", 3, "lstm must be a JSON object"),
        ("lstm.dim", None, '"lstm.dim" is missing'),
        ("lstm.dim", "16", '"lstm.dim" must be a whole number'),
        ("lstm.dim", True, '"lstm.dim" must be a whole number'),
        ("lstm.dim", 0, '"lstm.dim" must be at least 1'),
        ("lstm.dim", -16, '"lstm.dim" must be at least 1'),
        ("lstm.dim", 16.5, '"lstm.dim" must be a whole number'),
        ("lstm.dim", float("inf"), '"lstm.dim" must be a whole number'),
        ("lstm.dim", float("nan"), '"lstm.dim" must be a whole number'),
        ("lstm.dim", 10**400, '"lstm.dim" must be a whole number'),
        ("lstm.dim", 2**31, '"lstm.dim" must be at most 2147483647'),
        ("lstm.dim", [1] * 10**6, r'"lstm.dim" must be a whole number, but is \[1.*\.\.\.\]$'),
        ("lstm.n_layers", "x" * 10**6, '"lstm.n_layers" must be a whole number.{,60}$'),
        ("lstm.cell_clip", float("inf"), '"lstm.cell_clip" must be a number above 0'),
        ("lstm.cell_clip", 10**400, '"lstm.cell_clip" must be a number above 0'),
        ("lstm.proj_clip", "3", '"lstm.proj_clip" must be a number above 0'),
        ("char_cnn.max_characters_per_token", 10**9, "must be at most 1000"),
        ("char_cnn.filters", [[1, 2**31]], "numbers of at most 2147483647"),
        ("char_cnn.filters", [[1, True]], "must be .width, number. pairs"),
        ("char_cnn.filters", "[[1, 4]]", "must be a list of .width, number. pairs"),
        ("char_cnn.embedding", [4], "char_cnn.embedding must be a JSON object"),
        ("dropout", float("nan"), '"dropout" must be a number'),
        ("dropout", True, '"dropout" must be a number'),
        ("n_tokens_vocab", "50", '"n_tokens_vocab" must be a whole number'),
        ("n_negative_samples_batch", -1, '"n_negative_samples_batch" must be at least 1'),
        ("unroll_steps", "20", '"unroll_steps" must be a number'),
        ("batch_size", -1, '"batch_size" must be a whole number, at least 0'),
        ("all_clip_norm_val", [], '"all_clip_norm_val" must be a number'),
        ("lstm.\x1b[31m", 3, r'"lstm.\\u001b\[31m" is not known'),
        ("lstm.projection_dim", 32, '"lstm.projection_dim" .* must not exceed "lstm.dim"'),
        ("lstm.cell_clip", -1, '"lstm.cell_clip" must be a number above 0'),
        ("lstm.cell_clp", 3, '"lstm.cell_clp" is not known'),
        ("lstm.use_skip_connections", 1, "must be true or false"),
        ("char_cnn.n_characters", 300, '"char_cnn.n_characters" must be 261 .* or 262'),
        ("char_cnn.filters", None, '"char_cnn.filters" is missing'),
        ("char_cnn.filters", [[1, 2, 3]], "must be .width, number. pairs"),
        ("char_cnn.filters", [[60, 2]], "has width 60"),
        ("char_cnn.filter", [], '"char_cnn.filter" is not known'),
        ("char_cnn.activation", "gelu", '"char_cnn.activation" must be "relu" or "tanh"'),
        ("char_cnn.embedding", {}, '"char_cnn.embedding.dim" is missing'),
        ("dropout", 1.0, '"dropout" must be'),
        ("share_embedding_softmax", True, "needs a token embedding"),
    ],
)
def test_errors_name_source_and_key(path, value, message):
    with pytest.raises(ValueError, match="^my.json: .*" + message):
        BiLmOptions.from_dict(changed(path, value), source="my.json")


def test_a_file_that_is_not_json(tmp_path):
    path = tmp_path / "options.json"
    path.write_bytes(b"\xff{")
    with pytest.raises(ValueError, match="options.json: not a JSON file"):
        BiLmOptions.from_file(path)
    path.write_text("[1]")
    with pytest.raises(ValueError, match="must be a JSON object"):
        BiLmOptions.from_file(path)
    with pytest.raises(FileNotFoundError):
        BiLmOptions.from_file(tmp_path / "other.json")


def test_an_unknown_key_at_the_top_is_warned_about(caplog):
    BiLmOptions.from_dict(changed("n_negative_samples", 3))
    assert "n_negative_samples" in caplog.text


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"lstm": {"dim": 1e999}}', "is not a finite number"),
        ('{"lstm": {"dim": NaN}}', "is not a finite number"),
        ("[" * 100_000, "not a JSON file"),
        ('{"lstm": {"dim": 1, "dim": 2}}', 'the key "dim" is there twice'),
    ],
)
def test_a_file_that_is_no_options(text, message, tmp_path):
    path = tmp_path / "options.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"options.json: .*{message}"):
        BiLmOptions.from_file(path)
