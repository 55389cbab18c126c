"""`Elmo` against AllenNLP's: on the same weights and inputs everything agrees."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin import Elmo, batch_to_ids
from allennlp_elmo_plugin.elmo import elmo as ours
from allennlp_elmo_plugin.elmo.elmo_bilm import ElmoBiLm
from tests.support.elmo_pairs import (
    SENTENCES,
    TEXT,
    assert_close,
    assert_same,
    make_pair,
    random_ids,
)
from tests.support.originals import elmo as original
from tests.support.processor import HAS_BFLOAT16
from tests.support.testing import fork

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


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_output_representations": 2, "do_layer_norm": True, "dropout": 0.5},
        {"num_output_representations": 3, "keep_sentence_boundaries": True, "dropout": 0.5},
        {"keep_sentence_boundaries": True, "do_layer_norm": True},
        {"num_output_representations": 2, "scalar_mix_parameters": [-9e10, 1.0, -9e10]},
    ],
    ids=str,
)
def test_equals_the_original(elmo_pair, arguments):
    pair = elmo_pair(**arguments)
    for ids in INPUTS:
        # AllenNLP's fails to give boundaries their place among more dimensions.
        if ids.dim() == 3 or "keep_sentence_boundaries" not in arguments:
            assert_same(pair, ids)
    for elmo in pair:
        elmo.eval()
    assert_same(pair, TEXT)
    # From words, which may come one by one
    assert_close(pair.ours.embed_sentences(map(iter, SENTENCES)), pair.original(TEXT))
    assert_close(batch_to_ids(SENTENCES), TEXT)
    with pytest.raises(ValueError, match=r"instead of a list.*\[\['A', 'sentence'\]\]"):
        batch_to_ids("A sentence")


def test_another_module(files_of):
    class Module(torch.nn.Module):
        num_layers = 2

        def forward(self, inputs, word_inputs=None):
            layers = [inputs.float().sum(-1, keepdim=True) * i for i in (1, 2)]
            return {"activations": layers, "mask": (inputs > 0).any(-1)}

        def get_output_dim(self):
            return 1

    bilm, original_bilm = make_pair(ElmoBiLm, original._ElmoBiLm, **files_of())
    # Each language model in either `Elmo`
    for modules in ((Module(), Module()), (bilm, original_bilm), (original_bilm, bilm)):
        elmos = zip((Elmo, original.Elmo), modules)
        # A copy of a program asks for gradients, too.
        arguments = {"requires_grad": True, "dropout": 0}
        elmos = (partial(elmo, None, None, 2, **arguments, module=module) for elmo, module in elmos)
        assert_same(make_pair(*elmos), TEXT)
    with pytest.raises(ValueError, match="embed_sentences needs Elmo's own biLM"):
        Elmo(None, module=Module()).embed_sentences(SENTENCES)
    settings = {"weight_file": "tiny", "initial_state": "zero", "precision": "int8"}
    for name, value in {**settings, "max_cached_words": 1}.items():
        with pytest.raises(ValueError, match="module has its own"):
            Elmo(None, module=bilm, **{name: value})


def test_a_mix_may_be_replaced(elmo_pair):
    class LastLayer(torch.nn.Module):
        def forward(self, tensors, mask=None):
            assert mask is not None
            return tensors[-1]

    pair = elmo_pair()
    for elmo in pair:
        elmo.scalar_mix_0 = LastLayer()
    assert_same(pair, TEXT)
    # AllenNLP's list says how many there are.
    for elmo in pair:
        elmo.add_module("scalar_mix_1", LastLayer())
        elmo._scalar_mixes.append(elmo.scalar_mix_1)
    assert_same(pair, TEXT)
    for elmo in pair:
        elmo._scalar_mixes = torch.nn.ModuleList([LastLayer()])
        elmo.add_module("scalar_mix_0", elmo._scalar_mixes[0])
    assert_same(pair, TEXT)


def test_word_inputs_without_a_cache_are_ignored(elmo_pair, caplog):
    assert_same(elmo_pair(), TEXT, TEXT[..., 0])
    loggers = {record.name for record in caplog.records if record.levelname == "WARNING"}
    assert loggers == {module.__name__ for module in (ours, original)}


def test_settings_of_a_config(files_of):
    def from_params(**settings):
        return Elmo.from_params(Params({**files_of(), "dropout": 0.0, **settings}))

    elmo = from_params(num_output_representations=2, vocab_to_cache=["", "a"], max_cached_words=7)
    assert elmo.bilm.token_layer.max_cached_words == 7
    expected = elmo(batch_to_ids([["a"]]))["elmo_representations"]
    elmo.bilm._elmo_lstm.reset_states()
    output = elmo(torch.zeros(1, 1, 50).long(), torch.ones(1, 1, 1).long())
    assert output["mask"].tolist() == [[[True]]]
    assert_close(output["elmo_representations"], [mix.unsqueeze(0) for mix in expected])
    for precision in [*["bfloat16"] * HAS_BFLOAT16, "int8"]:
        rounded = from_params(precision=precision)(batch_to_ids([["a"]]))["elmo_representations"]
        assert 0 < (rounded[0] - expected[0]).norm() < 0.1 * expected[0].norm()
    with pytest.raises(ConfigurationError, match="'warm'.*carried"):
        from_params(initial_state="warm")


def test_short_calls(files_of):
    options, weights = map(Path, files_of().values())
    for arguments, n_mixes in (
        (("tiny", 2), 2),
        (("tiny", None, 3), 3),
        ((options,), 1),
        ((options.parent, 2), 2),
        ((options, weights, 2), 2),
    ):
        output = Elmo(*arguments)(batch_to_ids([["a"]]))
        assert len(output["elmo_representations"]) == n_mixes


def test_traces_and_exports_are_refused_and_compile_works(elmo_pair):
    elmo = elmo_pair(requires_grad=True).ours

    def check():
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

    assert fork(check) == 0  # A process that has compiled can't train in forks afterwards.


def quantized(elmo):
    return torch.ao.quantization.quantize_dynamic(elmo, {torch.nn.Linear}, dtype=torch.qint8)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda elmo: elmo(SENTENCES), "got an input of the type list, .* batch_to_ids"),
        (lambda elmo: elmo(TEXT.numpy()), "type ndarray"),
        (lambda elmo: elmo(None, word_inputs=TEXT[..., 0]), "NoneType, .*character ids"),
        (lambda elmo: elmo(TEXT, [[1]]), "type list, .* as word_inputs another of indices"),
        (lambda elmo: Elmo("tiny", num_output_representations=0), "must be at least 1"),
        (lambda elmo: Elmo("tiny", 2, num_output_representations=3), "given twice: leave out one"),
        (lambda elmo: Elmo("tiny", precision="float16"), "precision is 'float16'; it must be one"),
        (lambda elmo: Elmo("tiny", precision="int8", requires_grad=True), "int8 has no gradient"),
        (lambda elmo: Elmo("a/weights.hdf5", "a/options.json"), "weights.hdf5: these are weights"),
        (torch.jit.script, "can't be traced or exported"),
        (lambda elmo: quantized(elmo)(TEXT), 'quantize_dynamic, use precision="int8"'),
        (lambda elmo: elmo.bilm.lstm.forward_layers[0](TEXT, [1], None), "call the LSTM of all"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_mistakes(elmo_pair, call, message):
    with pytest.raises(Exception, match=message):
        call(elmo_pair(vocab_to_cache=["", "a"]).ours)


@pytest.mark.parametrize("vocab_to_cache", [None, ["", "a"]])
def test_a_tuned_model_is_saved_as_two_files_for_the_original(files_of, vocab_to_cache, tmp_path):
    elmo = Elmo(**files_of(), requires_grad=True, dropout=0.0, vocab_to_cache=vocab_to_cache)
    before = elmo(TEXT)["elmo_representations"][0]
    before.square().sum().backward()
    torch.optim.SGD(elmo.bilm.parameters(), 0.01).step()
    elmo.save(tmp_path / "tuned")
    paths = (str(tmp_path / "tuned" / name) for name in ("options.json", "weights.hdf5"))
    theirs = original.Elmo(*paths, 1, dropout=0.0)
    elmo.bilm._elmo_lstm.reset_states()
    after = elmo(TEXT)["elmo_representations"][0]
    assert (after - before).abs().max() > 0.01
    assert_close(theirs(TEXT)["elmo_representations"][0], after)
    with pytest.raises(ValueError, match="Elmo's own biLM"):
        Elmo(None, module=elmo.bilm.lstm).save(tmp_path)


def test_threads_that_share_a_carried_state_see_whole_ones(elmo_pair):
    """The vectors of one sentence, again and again, are among those of one thread."""
    elmo = elmo_pair().ours

    def run(_):
        return elmo(TEXT[:1])["elmo_representations"][0].flatten()

    expected = torch.stack([run(None) for _ in range(40)])  # (40, n)
    elmo.bilm._elmo_lstm.reset_states()
    with ThreadPoolExecutor(4) as pool:
        actual = torch.stack(list(pool.map(run, range(40))))  # (40, n)
    distances = torch.cdist(actual, expected, p=float("inf"))  # (40, 40)
    assert (distances.amin(1) <= 1e-5).all()
