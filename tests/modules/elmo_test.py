"""`Elmo` against AllenNLP's: on the same weights and inputs everything agrees."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.modules import elmo as ours
from allennlp_elmo_plugin.modules.elmo import Elmo, batch_to_ids
from tests.support.elmo_pairs import (
    POSITIONS,
    SIZES,
    TEXT,
    Pair,
    assert_close,
    assert_same,
    assert_same_gradients,
    assert_same_state_dict,
    bilms,
    cached_ids,
    random_ids,
)
from tests.support.originals import elmo as original

SENTENCES = [["the", "cat", "sat", "there"], [], ["the", "dog"]]
INPUTS = (
    TEXT,
    random_ids(4, 1, 0, 7, timesteps=8, seed=1),
    random_ids(1),
    torch.zeros(2, 0, 50, dtype=torch.long),
    random_ids(0, 0, timesteps=3),
    torch.full((1, 4, 50), 261),
    torch.ones(2, 3, 50, dtype=torch.long),
    random_ids(3, 0, 5, 1, 0, 0).view(2, 3, 5, 50),
    random_ids(3, 0, 5, 1, 0, 0).view(1, 2, 3, 5, 50),
)


def test_batch_to_ids_is_allennlps():
    words = [
        "naïve",
        "ﬁsh",
        "日本語" * 10,
        "x" * 100,
        "é" * 40,
        "😀",
        "<S>",
        "no\u00a0break",
        "a b",
    ]
    for batch in ([["one"]], [words, [], ["one"]]):
        expected = original.batch_to_ids(batch)
        assert batch_to_ids(batch).dtype == expected.dtype
        assert torch.equal(batch_to_ids(batch), expected)
    with pytest.raises(ValueError, match=r"takes a list of sentences.*\[\['A', 'sentence'\]\]"):
        batch_to_ids("A sentence")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"representations": 2, "do_layer_norm": True},
        {"representations": 3, "keep_sentence_boundaries": True},
        {"keep_sentence_boundaries": True, "do_layer_norm": True},
        {"representations": 2, "scalar_mix_parameters": [-9e10, 1.0, -9e10]},
    ],
    ids=str,
)
def test_equals_the_original(elmo_pair, arguments):
    pair = elmo_pair(**arguments)
    assert pair.ours.get_output_dim() == pair.original.get_output_dim()
    for ids in INPUTS:
        # AllenNLP's fails to give boundaries their place among more dimensions.
        if ids.dim() == 3 or "keep_sentence_boundaries" not in arguments:
            assert_same(pair, ids)
    assert_same_state_dict(pair)
    # The state of an optimizer goes by the parameters' order.
    names = [[(n, p.requires_grad) for n, p in elmo.named_parameters()] for elmo in pair]
    assert names[0] == names[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", SIZES)
def test_gradients_equal_the_originals(elmo_pair, size, dtype):
    pair = elmo_pair(size, representations=2, requires_grad=True)
    # The second batch starts from a state.
    for ids in (TEXT, random_ids(5, 2, 0, 1, seed=3)):
        for elmo in pair:
            elmo.to(dtype).zero_grad()
            generator = torch.Generator().manual_seed(0)
            loss = torch.zeros((), dtype=dtype)
            for output in elmo(ids)["elmo_representations"]:
                loss += (torch.randn(output.shape, generator=generator) * output).sum()
            loss.backward()
        assert_same_gradients(pair)


@pytest.mark.parametrize("do_layer_norm", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_dropout(elmo_pair, training, do_layer_norm):
    pair = elmo_pair(dropout=0.5, representations=2, do_layer_norm=do_layer_norm)
    outputs = []
    for elmo in pair:
        torch.manual_seed(7)
        outputs.append(elmo.train(training)(TEXT)["elmo_representations"])
    for each in zip(*outputs):
        assert_close(*each)


def test_another_module(files_of):
    class Module(torch.nn.Module):
        num_layers = 2

        def forward(self, inputs, word_inputs=None):
            layers = [inputs.float().sum(-1, keepdim=True) * i for i in (1, 2)]
            return {"activations": layers, "mask": (inputs > 0).any(-1)}

    def pair(*modules):
        elmos = zip((ours, original), modules)
        return Pair(*(file.Elmo(None, None, 2, dropout=0, module=each) for file, each in elmos))

    assert_same(pair(Module(), Module()), TEXT)
    bilm = bilms(*files_of())
    assert_same(pair(*bilm), TEXT)
    assert_same_state_dict(pair(*bilm))
    for each in bilm:
        each._elmo_lstm.reset_states()
    # Either language model in the other's `Elmo`.
    assert_same(pair(*bilm[::-1]), TEXT)
    with pytest.raises(ConfigurationError, match="embed_sentences needs Elmo's own biLM"):
        Elmo(None, module=Module()).embed_sentences(SENTENCES)
    for setting in (
        *({"options_file": "tiny"}, {"requires_grad": True}, {"initial_state": "zero"}),
        *({"precision": "int8"}, {"max_cached_words": 1}),
    ):
        with pytest.raises(ConfigurationError, match="module has its own"):
            Elmo(**{"options_file": None, **setting}, module=bilm.ours)


def test_a_mix_may_be_replaced(elmo_pair):
    class LastLayer(torch.nn.Module):
        def forward(self, tensors, mask=None):
            assert mask is not None
            return tensors[-1]

    pair = elmo_pair()
    for elmo in pair:
        elmo.scalar_mix_0 = LastLayer()
    assert_same(pair, TEXT)


def test_word_inputs_without_a_cache_are_ignored(elmo_pair, caplog):
    assert_same(elmo_pair(), cached_ids(), POSITIONS)
    loggers = {record.name for record in caplog.records if record.levelname == "WARNING"}
    assert loggers == {module.__name__ for module in (ours, original)}


@pytest.mark.parametrize("arguments", [{}, {"do_layer_norm": True}, {"max_cached_words": 0}])
def test_embed_sentences_is_forward(files_of, arguments):
    elmo = Elmo(*files_of(), 2, dropout=0.0, **arguments)
    expected = elmo(batch_to_ids(SENTENCES))
    elmo._elmo_lstm._elmo_lstm.reset_states()
    actual = elmo.embed_sentences(map(iter, SENTENCES))
    assert torch.equal(actual["mask"], expected["mask"])
    for pair in zip(actual["elmo_representations"], expected["elmo_representations"]):
        assert_close(*pair)


def test_settings_of_a_config(files_of):
    files = dict(zip(("options_file", "weight_file"), files_of()))

    def from_params(**settings):
        return Elmo.from_params(Params({**files, "dropout": 0.0, **settings}))

    elmo = from_params(num_output_representations=2, vocab_to_cache=["", "a"], max_cached_words=7)
    assert elmo.bilm.token_layer.max_cached_words == 7
    expected = elmo(batch_to_ids([["a"]]))["elmo_representations"]
    elmo.bilm._elmo_lstm.reset_states()
    output = elmo(torch.zeros(1, 1, 50).long(), torch.ones(1, 1, 1).long())
    assert output["mask"].tolist() == [[[True]]]
    for found, each in zip(output["elmo_representations"], expected):
        assert_close(found, each.unsqueeze(0))
    for precision in ("bfloat16", "int8"):
        rounded = from_params(precision=precision)(batch_to_ids([["a"]]))["elmo_representations"]
        assert 0 < (rounded[0] - expected[0]).norm() < 0.1 * expected[0].norm()
    with pytest.raises(ConfigurationError, match="precision is 'float16'; it must be one of"):
        from_params(precision="float16")
    with pytest.raises(ConfigurationError, match="int8 has no gradient"):
        from_params(precision="int8", requires_grad=True)
    with pytest.raises(ConfigurationError, match="'warm'.*carried"):
        from_params(initial_state="warm")


def test_traces_and_exports_are_refused_and_compile_works(elmo_pair):
    elmo = elmo_pair(requires_grad=True).ours
    with pytest.raises(RuntimeError, match="can't be traced or exported"):
        torch.jit.trace(elmo, (TEXT,), strict=False)
    if hasattr(torch.compiler, "is_exporting"):  # not in torch 2.6
        with pytest.raises(RuntimeError, match="can't be traced or exported"):
            torch.export.export(elmo, (TEXT,), strict=False)
    expected = elmo(TEXT)["elmo_representations"][0]
    elmo.bilm._elmo_lstm.reset_states()
    output = torch.compile(elmo, backend="eager")(TEXT)["elmo_representations"][0]
    assert_close(output, expected)
    output.sum().backward()


def test_threads_that_share_a_carried_state_see_whole_ones(elmo_pair):
    """The vectors of one sentence, again and again, are among those of one thread."""
    elmo = elmo_pair().ours

    def run(_):
        return elmo(TEXT[:1])["elmo_representations"][0].flatten()

    expected = torch.stack([run(None) for _ in range(40)])  # (40, n)
    elmo.bilm._elmo_lstm.reset_states()
    with ThreadPoolExecutor(4) as pool:
        found = torch.stack(list(pool.map(run, range(40))))  # (40, n)
    distances = torch.cdist(found, expected, p=float("inf"))  # (40, 40)
    assert (distances.amin(1) <= 1e-5).all()
