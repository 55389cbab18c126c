"""`Elmo` under what torch does to modules; `differential_fuzz_test.py` has the most."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from allennlp.confidence_checks.normalization_bias_verification import NormalizationBiasVerification

from allennlp_elmo_plugin.modules.elmo import batch_to_ids
from tests.support.elmo_pairs import TEXT, assert_close


def embed(elmo):
    """From zero, whatever came before."""
    elmo._elmo_lstm._elmo_lstm.reset_states()
    return elmo(TEXT)["elmo_representations"][0]


def test_traces_and_exports_are_refused_and_compile_works(elmo_pair):
    elmo = elmo_pair(requires_grad=True).ours
    with pytest.raises(RuntimeError, match="can't be traced or exported"):
        torch.jit.trace(elmo, (TEXT,), strict=False)
    if hasattr(torch.compiler, "is_exporting"):  # not in torch 2.6
        with pytest.raises(RuntimeError, match="can't be traced or exported"):
            torch.export.export(elmo, (TEXT,), strict=False)
    expected = embed(elmo)
    elmo._elmo_lstm._elmo_lstm.reset_states()
    output = torch.compile(elmo, backend="eager")(TEXT)["elmo_representations"][0]
    assert_close(output, expected)
    output.sum().backward()


@pytest.mark.parametrize(
    "name", ["_token_embedder.char_conv_1", "_elmo_lstm.backward_layer_1.state_linearity"]
)
def test_hooks_on_layers_are_refused_except_those_of_allennlps_trainer(elmo_pair, name):
    elmo = elmo_pair().ours
    expected = embed(elmo)  # words are kept now
    layer = elmo._elmo_lstm.get_submodule(name)
    handle = layer.register_forward_hook(lambda _, __, output: output)
    for call in (elmo, lambda _: elmo.embed_sentences([["A"]])):
        with pytest.raises(ValueError, match=f"the layer {name.split('.')[-1]} of .* a hook"):
            call(TEXT)
    handle.remove()
    NormalizationBiasVerification(elmo).register_hooks()
    assert torch.equal(embed(elmo), expected)


def test_threads_that_share_a_carried_state_see_whole_ones(elmo_pair):
    """The vectors of one sentence, again and again, are among those of one thread."""
    elmo = elmo_pair().ours
    ids = batch_to_ids([["One", "sentence"]])

    def run(_):
        return elmo(ids)["elmo_representations"][0].flatten()

    expected = torch.stack([run(None) for _ in range(40)])  # (40, n)
    elmo._elmo_lstm._elmo_lstm.reset_states()
    with ThreadPoolExecutor(4) as pool:
        found = torch.stack(list(pool.map(run, range(40))))  # (40, n)
    distances = torch.cdist(found, expected, p=float("inf"))  # (40, 40)
    assert (distances.amin(1) <= 1e-5).all()
