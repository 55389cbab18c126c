"""Elmo under what torch and its users do to modules: modes, hooks, edits, threads. The oracle is
AllenNLP's own module with the same weights; `differential_fuzz_test.py` mixes all of them."""

import itertools
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from allennlp.confidence_checks.normalization_bias_verification import NormalizationBiasVerification
from torch.utils.checkpoint import checkpoint

from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.kernels.matrix_product import has_onednn
from allennlp_elmo_plugin.modules.elmo import Elmo, batch_to_ids
from tests.support import originals
from tests.support.testing import write_random_elmo

SENTENCES = [["The", "cat", "sat", "."], ["Hello"], ["A", "longer", "one", ",", "A", "cat", "!"]]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_random_elmo(
        tmp_path_factory.mktemp("elmo"), lstm_dim=6, projection_dim=4, filters=[(1, 3), (2, 4)]
    )


@pytest.fixture(scope="module")
def large_files(tmp_path_factory):
    """Large enough for oneDNN."""
    return write_random_elmo(
        tmp_path_factory.mktemp("large"),
        lstm_dim=256,
        projection_dim=64,
        filters=[(1, 64), (3, 96)],
    )


def both(files, requires_grad=False, **arguments):
    """Ours and AllenNLP's."""
    arguments = {"dropout": 0.0, "num_output_representations": 1, **arguments}
    ours = Elmo(*files, requires_grad=requires_grad, **arguments)
    theirs = originals.elmo.Elmo(*files, requires_grad=requires_grad, **arguments)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def embed(elmo, sentences=SENTENCES):
    """From zero, whatever came before."""
    elmo._elmo_lstm._elmo_lstm.reset_states()
    return elmo(batch_to_ids(sentences))["elmo_representations"][0]


def assert_same(ours, theirs, tolerance=1e-5):
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def test_every_subset_of_the_layers_has_allennlps_gradients(files):
    ours, theirs = both(files, requires_grad=True)
    names = [name for name, _ in ours.named_parameters() if name.startswith("_elmo_lstm")]
    # Every single parameter, and all subsets of the encoder's two parts and the four layers.
    groups = ["char|_highways", "_projection"]
    groups += [f"{direction}_layer_{k}" for direction in ("forward", "backward") for k in range(2)]
    subsets = [{name} for name in names]
    for size in range(1, len(groups) + 1):
        for chosen in itertools.combinations(groups, size):
            pattern = re.compile("|".join(chosen))
            subsets.append({name for name in names if pattern.search(name)})
    for subset in subsets:
        for elmo in (ours, theirs):
            for name, parameter in elmo.named_parameters():
                parameter.requires_grad_(name in subset)
                parameter.grad = None
            embed(elmo).square().sum().backward()
        for (name, mine), (_, its) in zip(ours.named_parameters(), theirs.named_parameters()):
            assert (mine.grad is None) == (its.grad is None) == (name not in subset), name
            if mine.grad is not None:
                assert_same(mine.grad, its.grad)


@pytest.mark.parametrize("size", ["files", "large_files"])
@pytest.mark.parametrize("how", ["in place", "copy", "element, then train", "element, then eval"])
def test_new_values_of_parameters_count(request, size, how):
    """At once; an edit of a few numbers through `.data`, after `train` or `eval`."""
    ours, theirs = both(request.getfixturevalue(size))
    with torch.no_grad():
        embed(ours)
        for (name, mine), its in zip(ours.named_parameters(), theirs.parameters()):
            for each in (mine, its):
                if how == "in place":
                    each.view(-1)[each.numel() // 3] += 0.5
                elif how == "copy":
                    each.data.copy_(each.data.flip(0) * 0.9)
                else:
                    each.data.view(-1)[each.numel() // 3] += 0.5
            if "," in how:
                getattr(ours, how.split()[-1])()
            assert_same(embed(ours), embed(theirs)), name


@pytest.mark.parametrize("first", ["autocast", "inference", "normal"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_no_mode_leaves_anything_to_the_next_call(large_files, first, requires_grad):
    ours, theirs = both(large_files, requires_grad=requires_grad)
    if first == "autocast":
        has_onednn.cache_clear()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = embed(ours)
            assert output.dtype == torch.float32
            assert_same(output, embed(theirs), 0.1)
            if requires_grad:
                output.sum().backward()
    elif first == "inference":
        with torch.inference_mode():
            ours(batch_to_ids(SENTENCES)), theirs(batch_to_ids(SENTENCES))
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            assert_same(embed(ours, SENTENCES[::-1]), embed(theirs, SENTENCES[::-1]))


def test_autocast_does_not_change_gradients(files):
    ours, _ = both(files, requires_grad=True)

    def gradients(in_forward, in_backward):
        ours.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=in_forward):
            loss = embed(ours).square().sum()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=in_backward):
            loss.backward()
        return [each.grad.clone() for each in ours.parameters()]

    expected = gradients(False, False)
    for in_forward, in_backward in ((True, False), (False, True)):
        for grad, other in zip(gradients(in_forward, in_backward), expected):
            assert torch.equal(grad, other)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing(files, use_reentrant):
    ours, theirs = both(files, requires_grad=True)
    ids = batch_to_ids(SENTENCES)
    bias = torch.zeros((), requires_grad=True)
    for elmo in (ours, theirs):
        elmo._elmo_lstm._elmo_lstm.stateful = False

        def run(offset, elmo=elmo):
            return elmo(ids)["elmo_representations"][0] + offset

        checkpoint(run, bias, use_reentrant=use_reentrant).square().sum().backward()
    for mine, its in zip(ours.parameters(), theirs.parameters()):
        assert_same(mine.grad, its.grad)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_replicas_of_data_parallel(files, requires_grad):
    """As `torch.nn.parallel.replicate` makes them: parameters are plain attributes."""
    ours, theirs = both(files, requires_grad=requires_grad)
    embed(ours)

    def replicate(elmo):
        replicas = {module: module._replicate_for_data_parallel() for module in elmo.modules()}
        for module, replica in replicas.items():
            for key, child in module._modules.items():
                replica._modules[key] = None if child is None else replicas[child]
            for key, parameter in module._parameters.items():
                setattr(replica, key, None if parameter is None else parameter * 1.0)
        return replicas[elmo]

    for elmo in (ours, theirs):
        embed(replicate(elmo)).square().sum().backward()
    for mine, its in zip(ours.parameters(), theirs.parameters()):
        assert (mine.grad is None) == (its.grad is None)
        if mine.grad is not None:
            assert_same(mine.grad, its.grad)


def test_traces_and_exports_are_refused_and_compile_works(files):
    ours, theirs = both(files, requires_grad=True)
    ids = batch_to_ids(SENTENCES)
    with pytest.raises(RuntimeError, match="can't be traced or exported"):
        torch.jit.trace(ours, (ids,), strict=False)
    if hasattr(torch.compiler, "is_exporting"):  # not in torch 2.6
        with pytest.raises(RuntimeError, match="can't be traced or exported"):
            torch.export.export(ours, (ids,), strict=False)
    compiled = torch.compile(ours, backend="eager")
    for sentences in (SENTENCES, SENTENCES[:1]):
        ours._elmo_lstm._elmo_lstm.reset_states()
        output = compiled(batch_to_ids(sentences))["elmo_representations"][0]
        assert_same(output, embed(theirs, sentences))
        output.sum().backward()


class Wrapper(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return double(self.module(*inputs))


def double(output):
    key = "activations" if "activations" in output else "token_embedding"
    values = output[key]
    return {**output, key: [2 * x for x in values] if isinstance(values, list) else 2 * values}


class TestHooksAndReplacements:
    @pytest.mark.parametrize("how", ["hook", "wrapped"])
    @pytest.mark.parametrize("name", ["_elmo_lstm", "_elmo_lstm._token_embedder"])
    def test_of_the_language_model_and_its_encoder(self, files, how, name):
        ours, theirs = both(files)
        for elmo in (ours, theirs):
            module = elmo.get_submodule(name)
            if how == "hook":
                module.register_forward_hook(lambda *args: double(args[-1]))
            elif "." in name:
                elmo._elmo_lstm._token_embedder = Wrapper(module)
        assert_same(embed(ours), embed(theirs))
        ours._elmo_lstm._elmo_lstm.reset_states()
        words = ours.embed_sentences(SENTENCES)["elmo_representations"][0]
        assert_same(words, embed(theirs))

    def test_of_a_scalar_mix(self, files):
        class LastLayer(torch.nn.Module):
            def forward(self, tensors, mask=None):
                assert mask is not None
                return tensors[-1]

        ours, theirs = both(files)
        ours.scalar_mix_0, theirs.scalar_mix_0 = LastLayer(), LastLayer()
        assert_same(embed(ours), embed(theirs))

    @pytest.mark.parametrize(
        "name",
        [
            "_token_embedder.char_conv_1",
            "_token_embedder._highways._layers.0",
            "_elmo_lstm.forward_layer_0",
            "_elmo_lstm.backward_layer_1.state_linearity",
        ],
    )
    def test_hooks_on_layers_are_refused(self, files, name):
        """Their weights are read directly."""
        elmo = Elmo(*files, 1, dropout=0.0)
        expected = embed(elmo)  # words are kept now
        layer = elmo._elmo_lstm.get_submodule(name)
        handle = layer.register_forward_hook(lambda _, __, output: output)
        for call in (elmo, lambda _: elmo.embed_sentences(SENTENCES)):
            with pytest.raises(ValueError, match=f"the layer {name.split('.')[-1]} of .* a hook"):
                call(batch_to_ids(SENTENCES))
        handle.remove()
        assert_same(embed(elmo), expected)
        NormalizationBiasVerification(elmo).register_hooks()  # AllenNLP's trainer does
        assert torch.equal(embed(elmo), expected)


class TestThreads:
    N_THREADS = 4

    def run(self, function, arguments):
        barrier = threading.Barrier(self.N_THREADS)

        def work(part):
            barrier.wait()
            return [function(each) for each in part]

        parts = [arguments[i :: self.N_THREADS] for i in range(self.N_THREADS)]
        with ThreadPoolExecutor(self.N_THREADS) as pool:
            done = list(pool.map(work, parts))
        results = [None] * len(arguments)
        for i, part in enumerate(done):
            results[i :: self.N_THREADS] = part
        return results

    @pytest.mark.parametrize("max_cached_words", [100, 50_000])
    def test_one_elmo_for_all(self, files, max_cached_words):
        numbers = random.Random(0)
        batches = [
            [[f"w{numbers.randrange(300)}" for _ in range(length)] for length in (n % 12 + 1, 12)]
            for n in range(40)
        ]
        arguments = {"initial_state": "settled", "max_cached_words": max_cached_words}
        reference, shared = (Elmo(*files, 1, dropout=0.0, **arguments) for _ in range(2))
        expected = [embed(reference, batch) for batch in batches]
        for function in (
            lambda batch: shared(batch_to_ids(batch))["elmo_representations"][0],
            lambda batch: shared.embed_sentences(batch)["elmo_representations"][0],
        ):
            for mine, other in zip(self.run(function, batches), expected):
                assert_same(mine, other, 1e-6)

    def test_carried_states_are_those_of_some_order(self, files):
        """Calls with one sentence, the same each time, have the same sequence of vectors in any
        order."""
        reference, shared = (Elmo(*files, 1, dropout=0.0) for _ in range(2))
        ids = batch_to_ids(SENTENCES[:1])
        expected = [reference(ids)["elmo_representations"][0] for _ in range(60)]
        results = self.run(lambda _: shared(ids)["elmo_representations"][0], [None] * 60)
        left = torch.stack(results).flatten(1)  # (60, n)
        right = torch.stack(expected).flatten(1)  # (60, n)
        # The first few differ from each other, all later ones are near the fixed point.
        distances = (left.unsqueeze(1) - right).abs().amax(2)  # (60, 60)
        assert (distances.amin(0) <= 1e-6).all() and (distances.amin(1) <= 1e-6).all()

    def test_a_call_that_fails_leaves_the_carried_states(self, files, monkeypatch):
        ours, theirs = both(files)
        assert_same(embed(ours), embed(theirs))
        with monkeypatch.context() as patch:
            patch.setattr(CarriedState, "write", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                ours(batch_to_ids(SENTENCES))
        outputs = (e(batch_to_ids(SENTENCES))["elmo_representations"][0] for e in (ours, theirs))
        assert_same(*outputs)
