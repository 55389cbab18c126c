"""`elmo-export NAME.onnx`: what ONNX Runtime computes from the file is what this package does."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnxruntime import InferenceSession, SessionOptions

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.characters import CharacterTable, sentences_to_character_ids
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions, CharCnnOptions
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.pretrained.weight_file import write_weights

CHAR_CNN = CharCnnOptions(((1, 4), (3, 8)), "relu", 4, 1)
OPTIONS = BiLmOptions(16, 8, 2, 3.0, 3.0, True, CHAR_CNN)
WORDS = ["<S>", "the", "cat", "</S>", "<UNK>"]


def write_model(folder, options, seed=0):
    """Write a model with random weights large enough for clips and gates to matter."""
    folder.mkdir(exist_ok=True)
    torch.manual_seed(seed)
    bilm = BiLm(options)
    with torch.no_grad():
        for lstm in bilm.lstm.children():
            if hasattr(lstm, "weights"):
                lstm.input_linearity.weight.mul_(4)
                lstm.state_linearity.bias.normal_()
        if options.char_cnn is not None:
            for convolution in bilm.token_layer.convolutions:
                torch.nn.init.normal_(convolution.weight)
    options.write(folder / "options.json")
    write_weights(folder / "weights.hdf5", bilm)
    return bilm.eval()


def run(path, name, ids):
    onnx.checker.check_model(path, full_check=True)
    options = SessionOptions()
    options.intra_op_num_threads = 1
    return InferenceSession(path, options).run(["layers"], {name: ids})[0]


def check(folder, sentences, oracle=None, tolerance=2e-5, **settings):
    """Compare a model's export with its `ElmoEmbedder`, or with that of the folder `oracle`."""
    path = str(folder / "model.onnx")
    export(str(folder), path, force=True, **settings)
    state = settings.get("initial_state", "settled")
    embedder = ElmoEmbedder(oracle or folder, initial_state=state)
    width = embedder.elmo_bilm.token_layer.options.max_characters_per_token
    ids = sentences_to_character_ids(sentences, CharacterTable(width))
    layers = run(path, "character_ids", ids)
    for row, expected in enumerate(embedder.embed_batch(sentences)):
        actual, rest = np.split(layers[:, row], [expected.shape[1]], 1)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)
        assert not rest.any()


def optional(*values):
    return st.sampled_from([None, *values])


char_cnns = st.builds(
    CharCnnOptions,
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6)), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["relu", "tanh"]),
    embedding_dim=st.integers(1, 5),
    n_highway=st.integers(0, 2),
    max_characters_per_token=st.sampled_from([6, 50]),
)
models = st.builds(
    BiLmOptions,
    lstm_dim=st.sampled_from([8, 12]),
    projection_dim=st.sampled_from([8]),
    n_layers=st.integers(1, 3),
    cell_clip=optional(0.5, 3.0),
    proj_clip=optional(0.2, 3.0),
    use_skip_connections=st.booleans(),
    char_cnn=char_cnns,
    bidirectional=st.booleans(),
    project_lstm=optional(True),
    project_characters=optional(True),
)
words = st.sampled_from(["a", "cat", "Zürich", "東京", "<S>", "x" * 60]) | st.text(max_size=8)
batches = st.lists(st.lists(words, max_size=6), min_size=1, max_size=4).filter(any)


@settings(max_examples=settings.default.max_examples // 8)  # 12 by day
@given(options=models, sentences=batches, state=st.sampled_from(["settled", "zero"]))
@example(
    options=OPTIONS, sentences=[["one"], [], ["a", "row", "without", "a", "word"]], state="zero"
)
@example(options=OPTIONS, sentences=[["x"] * 3000], state="settled")
def test_layers_are_those_of_the_embedder(options, sentences, state, tmp_path):
    write_model(tmp_path / "elmo", options)
    check(tmp_path / "elmo", sentences, initial_state=state)


def test_no_sentence_has_a_word(tmp_path):
    write_model(tmp_path / "elmo", OPTIONS)
    export(str(tmp_path / "elmo"), path := str(tmp_path / "elmo.onnx"))
    assert run(path, "character_ids", np.zeros((2, 0, 50), np.int64)).shape == (3, 2, 0, 16)
    assert not run(path, "character_ids", np.zeros((2, 3, 50), np.int64)).any()


@pytest.mark.parametrize("bidirectional, state", [(True, "settled"), (False, "zero")])
def test_a_model_of_words_reads_their_places(bidirectional, state, tmp_path):
    options = replace(OPTIONS, char_cnn=None, n_tokens_vocab=5, bidirectional=bidirectional)
    bilm = write_model(tmp_path / "elmo", options)
    (tmp_path / "elmo" / "vocab.txt").write_text("\n".join(WORDS), "utf-8")
    export(str(tmp_path / "elmo"), path := str(tmp_path / "elmo.onnx"), initial_state=state)
    layers = run(path, "token_ids", np.array([[2, 4, 1], [1, -1, -1], [-1, -1, -1]]))
    for row, ids in enumerate([[2, 4, 1], [1], []]):
        start = CarriedState()
        with torch.no_grad():
            if state == "settled":
                start = bilm.settle(bilm.token_layer(torch.tensor([0, 3])))
            output = bilm(torch.tensor([[0, *ids, 3]]), carried=start)
        for layer in range(3):
            expected = output.unpack(layer, strip=1)[0]
            np.testing.assert_allclose(layers[layer, row, : len(ids)], expected, atol=2e-5)
            assert not layers[layer, row, len(ids) :].any()
    properties = {each.key: each.value for each in onnx.load(path).metadata_props}
    assert properties["vocabulary"].split("\n") == WORDS


def test_float16_has_the_numbers_of_a_folder_of_float16(tmp_path):
    write_model(folder := tmp_path / "elmo", replace(OPTIONS, lstm_dim=128))
    export(str(folder), tmp_path / "half", precision="float16")
    check(folder, [["one", "sentence"], ["x"]], tmp_path / "half", precision="float16")
    half = (folder / "model.onnx").stat().st_size
    export(str(folder), folder / "model.onnx", force=True)
    assert half < 0.6 * (folder / "model.onnx").stat().st_size


def test_the_file_says_what_it_is(tmp_path):
    write_model(folder := tmp_path / "elmo", OPTIONS)
    export(str(folder), tmp_path / "mine.onnx")
    model = onnx.load(tmp_path / "mine.onnx")
    properties = {each.key: each.value for each in model.metadata_props}
    assert properties["title"] == "mine" and properties["initial_state"] == "settled"
    assert json.loads(properties["options"]) == json.loads(Path(folder, "options.json").read_text())
    assert model.doc_string.startswith("# ELMo: mine\n") and "character_ids" in model.doc_string
    assert "to be filled in" in properties["model_license"]
    card = "# Ours\n\n## Licence\n\nCC BY 4.0\n\n## Use\n"
    (folder / "README.md").write_text(card, "utf-8")
    export(str(folder), tmp_path / "mine.onnx", force=True)
    model = onnx.load(tmp_path / "mine.onnx")
    properties = {each.key: each.value for each in model.metadata_props}
    assert model.doc_string == card and properties["model_license"] == "CC BY 4.0"


def test_what_cannot_be_written_leaves_the_earlier_file(tmp_path):
    bilm = write_model(folder := tmp_path / "elmo", OPTIONS)
    (path := tmp_path / "elmo.onnx").write_bytes(b"old")
    with pytest.raises(ValueError, match="elmo.onnx exists; choose another output, or --force"):
        export(str(folder), path)
    with torch.no_grad():
        bilm.lstm.forward_layers[0].state_linearity.weight[0] = 1e6
    write_weights(folder / "weights.hdf5", bilm)
    with pytest.raises(ValueError, match="weight' has numbers beyond those of float16"):
        export(str(folder), path, force=True, precision="float16")
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 2
