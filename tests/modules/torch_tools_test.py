"""Elmo under what torch and its users do to modules: modes, hooks, edits, threads. The oracle is
AllenNLP's own module with the same weights."""

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
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.modules.elmo import Elmo, batch_to_ids
from tests.support import originals
from tests.support.testing import write_random_elmo

LAYERS = ["forward_layer", "backward_layer"]
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


def edit(elmo, name, change):
    change(dict(elmo.named_parameters())[name].data)


class TestSubsetsOfParameters:
    def test_every_subset_of_the_layers_has_allennlps_gradients(self, files):
        ours, theirs = both(files, requires_grad=True)
        names = [name for name, _ in ours.named_parameters() if name.startswith("_elmo_lstm")]
        # Every single parameter, all but one, and all subsets of the encoder's two parts and the
        # four layers.
        groups = ["char|_highways", "_projection", *(f"{d}_{k}" for d in LAYERS for k in range(2))]
        subsets = [{name} for name in names] + [set(names) - {name} for name in names]
        for size in range(1, len(groups) + 1):
            for chosen in itertools.combinations(groups, size):
                pattern = re.compile("|".join(chosen))
                subsets.append({name for name in names if pattern.search(name)})
        for subset in subsets:
            for elmo in (ours, theirs):
                for name, parameter in elmo.named_parameters():
                    parameter.requires_grad_(name in subset)
                    parameter.grad = None
                output = embed(elmo)
                assert output.requires_grad
                output.square().sum().backward()
            for (name, mine), (_, its) in zip(ours.named_parameters(), theirs.named_parameters()):
                assert (mine.grad is None) == (its.grad is None) == (name not in subset), name
                if mine.grad is not None:
                    assert_same(mine.grad, its.grad)


class TestChangesOfParameters:
    @pytest.mark.parametrize("mode", ["train", "eval"])
    def test_an_edit_of_data_counts_after_train_or_eval(self, large_files, mode):
        ours, theirs = both(large_files)
        with torch.no_grad():
            embed(ours)
            for name in [name for name, each in ours.named_parameters() if each.dim() > 1]:
                for elmo in (ours, theirs):
                    edit(elmo, name, lambda data: data.view(-1)[7:8].add_(1.0))
                getattr(ours, mode)()
                assert_same(embed(ours), embed(theirs))

    @pytest.mark.parametrize("size", ["files", "large_files"])
    @pytest.mark.parametrize("in_place", [False, True])
    def test_new_values_count_at_once(self, request, size, in_place):
        ours, theirs = both(request.getfixturevalue(size))
        with torch.no_grad():
            embed(ours)
            for (name, mine), its in zip(ours.named_parameters(), theirs.parameters()):
                for each in (mine, its):
                    if in_place:
                        each.view(-1)[each.numel() // 3] += 0.5
                    else:
                        each.data.copy_(each.data.flip(0) * 0.9)
                assert_same(embed(ours), embed(theirs)), name

    def test_a_settled_state_follows_updates(self, files):
        elmo = Elmo(*files, 1, requires_grad=True, dropout=0.0, initial_state="settled")
        optimizer = torch.optim.SGD(elmo.parameters(), lr=0.001)
        for _ in range(3):
            output = elmo(batch_to_ids(SENTENCES))["elmo_representations"][0]
            fresh = Elmo(*files, 1, requires_grad=True, dropout=0.0, initial_state="settled")
            fresh.load_state_dict(elmo.state_dict())
            assert_same(output, embed(fresh))
            output.square().sum().backward()
            optimizer.step()
        elmo.eval(), fresh.eval().load_state_dict(elmo.state_dict())
        with torch.no_grad():
            assert torch.equal(embed(elmo), embed(fresh))


class TestModes:
    @pytest.mark.parametrize("first", ["autocast", "inference", "normal"])
    @pytest.mark.parametrize("requires_grad", [False, True])
    def test_no_mode_leaves_anything_to_the_next_call(self, large_files, first, requires_grad):
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

    def test_carried_states_of_inference_mode_serve_training(self, files):
        ours, theirs = both(files, requires_grad=True)
        results = []
        for elmo in (ours, theirs):
            with torch.inference_mode():
                elmo(batch_to_ids(SENTENCES))
            if elmo is theirs:  # AllenNLP's own states can't be used then
                states = elmo._elmo_lstm._elmo_lstm._states
                elmo._elmo_lstm._elmo_lstm._states = tuple(each.clone() for each in states)
            output = elmo(batch_to_ids(SENTENCES))["elmo_representations"][0]
            output.sum().backward()
            results.append(output)
        assert_same(*results)

    @pytest.mark.parametrize(
        "frozen", ["", "char_conv", "_char_embedding", "_token_embedder", "lstm_"]
    )
    def test_autocast_does_not_change_gradients(self, files, frozen):
        ours, _ = both(files, requires_grad=True)
        for name, each in ours.named_parameters():
            each.requires_grad_(not frozen or frozen not in name)

        def gradients(in_forward, in_backward):
            ours.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=in_forward):
                loss = embed(ours).square().sum()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=in_backward):
                loss.backward()
            return [each.grad.clone() for each in ours.parameters() if each.requires_grad]

        expected = gradients(False, False)
        for in_forward, in_backward in ((True, False), (False, True)):
            for grad, other in zip(gradients(in_forward, in_backward), expected):
                assert torch.equal(grad, other)

    def test_another_default_device(self, files):
        ours, theirs = both(files)
        ids = batch_to_ids(SENTENCES)
        expected = embed(theirs)
        embedder = ElmoEmbedder(*files)
        layers = embedder.embed_batch(SENTENCES)
        torch.set_default_device("meta")
        try:
            ours._elmo_lstm._elmo_lstm.reset_states()
            assert_same(ours(ids)["elmo_representations"][0], expected)
            ours._elmo_lstm._elmo_lstm.reset_states()
            output = ours.embed_sentences([[*each, "new"] for each in SENTENCES])
            assert output["elmo_representations"][0].device.type == "cpu"
            for mine, other in zip(embedder.embed_batch(SENTENCES), layers):
                assert (mine == other).all()
        finally:
            torch.set_default_device(None)

    def test_another_type(self, files):
        ours, theirs = both(files)
        embed(ours)
        with torch.no_grad():
            output = embed(ours.bfloat16())
        assert output.dtype == torch.bfloat16
        assert_same(output.float(), embed(theirs), 0.1)


class TestTools:
    @pytest.mark.parametrize("vocab_to_cache", [None, ["@@PADDING@@", "The", "cat"]])
    def test_parameters_have_allennlps_order(self, files, vocab_to_cache):
        """In which optimizers number them, also in the state of a run to go on with."""
        arguments = {"vocab_to_cache": vocab_to_cache, "num_output_representations": 2}
        ours, theirs = both(files, requires_grad=True, **arguments)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        assert [name for name, _ in ours.named_parameters()] == [
            name for name, _ in theirs.named_parameters()
        ]

    @pytest.mark.parametrize("use_reentrant", [False, True])
    def test_gradient_checkpointing(self, files, use_reentrant):
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

    def test_hooks_of_the_language_model(self, files):
        ours, theirs = both(files)
        seen = {}
        for elmo in (ours, theirs):
            outputs = seen[elmo] = {}
            bilm = elmo._elmo_lstm
            for name, module in [("bilm", bilm), ("encoder", bilm._token_embedder)]:
                module.register_forward_hook(
                    lambda _, inputs, output, outputs=outputs, name=name: outputs.update(
                        {name: (inputs, output)}
                    )
                )
        assert_same(embed(ours), embed(theirs))
        for name, keys in [("bilm", ["activations", "mask"]), ("encoder", ["token_embedding"])]:
            mine, its = seen[ours][name], seen[theirs][name]
            assert torch.equal(mine[0][0], its[0][0])
            for key in keys:
                assert_same(mine[1][key], its[1][key])
        seen[ours].clear()
        ours._elmo_lstm._elmo_lstm.reset_states()
        assert_same(ours.embed_sentences(SENTENCES)["elmo_representations"][0], embed(ours))
        assert set(seen[ours]) == {"bilm", "encoder"}

    def test_a_hook_that_changes_the_layers_of_the_language_model(self, files):
        ours, theirs = both(files)
        for elmo in (ours, theirs):
            elmo._elmo_lstm.register_forward_hook(
                lambda _, __, output: {
                    **output,
                    "activations": [2 * each for each in output["activations"]],
                }
            )
        assert_same(embed(ours), embed(theirs))

    def test_a_replaced_scalar_mix(self, files):
        class LastLayer(torch.nn.Module):
            def forward(self, tensors, mask=None):
                assert mask is not None
                return tensors[-1]

        ours, theirs = both(files)
        ours.scalar_mix_0, theirs.scalar_mix_0 = LastLayer(), LastLayer()
        assert_same(embed(ours), embed(theirs))

    def test_double_backward_is_refused(self, files):
        ours, _ = both(files, requires_grad=True)
        parameters = [each for each in ours.parameters() if each.requires_grad]
        grads = torch.autograd.grad(embed(ours).square().sum(), parameters, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            sum(grad.square().sum() for grad in grads).backward()

    @pytest.mark.parametrize("requires_grad", [False, True])
    def test_replicas_of_data_parallel(self, files, requires_grad):
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
        edit(ours, "_elmo_lstm._elmo_lstm.forward_layer_0.input_linearity.weight", torch.zero_)
        edit(theirs, "_elmo_lstm._elmo_lstm.forward_layer_0.input_linearity.weight", torch.zero_)
        assert_same(embed(replicate(ours)), embed(theirs))

    @pytest.mark.parametrize("requires_grad", [False, True])
    def test_traces_and_exports_are_refused(self, files, requires_grad):
        ours, _ = both(files, requires_grad=requires_grad)
        expected = embed(ours)
        ids = batch_to_ids(SENTENCES)
        with pytest.raises(RuntimeError, match="can't be traced or exported"):
            torch.jit.trace(ours, (ids,), strict=False)
        if hasattr(torch.compiler, "is_exporting"):  # not in torch 2.6
            with pytest.raises(RuntimeError, match="can't be traced or exported"):
                torch.export.export(ours, (ids,), strict=False)
        assert torch.equal(embed(ours), expected)

    @pytest.mark.parametrize("requires_grad", [False, True])
    def test_compile(self, files, requires_grad):
        ours, theirs = both(files, requires_grad=requires_grad)
        compiled = torch.compile(ours, backend="eager")
        for sentences in (SENTENCES, SENTENCES[:1], SENTENCES):
            ours._elmo_lstm._elmo_lstm.reset_states()
            output = compiled(batch_to_ids(sentences))["elmo_representations"][0]
            assert_same(output, embed(theirs, sentences))
            if requires_grad:
                output.sum().backward()


LAYERS_OF_MODEL = [
    "_token_embedder.char_conv_1",
    "_token_embedder._highways._layers.0",
    "_elmo_lstm.forward_layer_0",
    "_elmo_lstm.backward_layer_1.state_linearity",
]


class Wrapper(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return double(self.module(*inputs))


def double(output):
    return {**output, "token_embedding": 2 * output["token_embedding"]}


class TestLayers:
    """What others do to the layers in the language model, whose weights ours reads directly."""

    @pytest.mark.parametrize("name", LAYERS_OF_MODEL)
    def test_hooks_are_refused(self, files, name):
        elmo = Elmo(*files, 1, dropout=0.0)
        expected = embed(elmo)  # words are kept now
        layer = elmo._elmo_lstm.get_submodule(name)
        handle = layer.register_forward_hook(lambda _, __, output: output)
        for call in (elmo, lambda _: elmo.embed_sentences(SENTENCES)):
            with pytest.raises(ValueError, match=f"the layer {name.split('.')[-1]} of .* a hook"):
                call(batch_to_ids(SENTENCES))
        handle.remove()
        assert_same(embed(elmo), expected)

    def test_allennlps_confidence_checks_may_have_hooks(self, files):
        elmo = Elmo(*files, 1, dropout=0.0)
        expected = embed(elmo)
        check = NormalizationBiasVerification(elmo)
        check.register_hooks()
        assert torch.equal(embed(elmo), expected)

    @pytest.mark.parametrize("how", ["hook", "wrapped"])
    @pytest.mark.parametrize("initial_state", ["carried", "settled"])
    def test_another_encoder(self, files, how, initial_state):
        whole, cut = (ElmoEmbedder(*files, initial_state=initial_state) for _ in range(2))
        ours, theirs = both(files)
        cut._segment_steps = 2
        for bilm in (whole.elmo_bilm, cut.elmo_bilm, ours._elmo_lstm, theirs._elmo_lstm):
            if how == "hook":
                bilm._token_embedder.register_forward_hook(lambda *args: double(args[-1]))
            else:
                bilm._token_embedder = Wrapper(bilm._token_embedder)
        for _ in range(2):
            for one, other in zip(whole.embed_batch(SENTENCES), cut.embed_batch(SENTENCES)):
                assert_same(torch.from_numpy(one), torch.from_numpy(other))
        assert_same(embed(ours), embed(theirs))
        words = ours.embed_sentences(SENTENCES)["elmo_representations"][0]
        assert_same(words, theirs(batch_to_ids(SENTENCES))["elmo_representations"][0])


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

    def batches(self):
        numbers = random.Random(0)
        return [
            [[f"w{numbers.randrange(300)}" for _ in range(length)] for length in (n % 12 + 1, 12)]
            for n in range(40)
        ]

    @pytest.mark.parametrize("max_cached_words", [100, 50_000])
    def test_one_elmo_for_all(self, files, max_cached_words):
        arguments = {
            "initial_state": "settled",
            "dropout": 0.0,
            "max_cached_words": max_cached_words,
        }
        batches = self.batches()
        reference = Elmo(*files, 1, **arguments)
        expected = [embed(reference, batch) for batch in batches]
        shared = Elmo(*files, 1, **arguments)
        for function in (
            lambda batch: shared(batch_to_ids(batch))["elmo_representations"][0],
            lambda batch: shared.embed_sentences(batch)["elmo_representations"][0],
        ):
            for _ in range(2):
                for mine, other in zip(self.run(function, batches), expected):
                    assert_same(mine, other, 1e-6)

    def test_carried_states_are_those_of_some_order(self, files):
        """Calls with one sentence, the same each time, have the same sequence of vectors in any
        order."""
        reference = Elmo(*files, 1, dropout=0.0)
        ids = batch_to_ids(SENTENCES[:1])
        expected = [reference(ids)["elmo_representations"][0] for _ in range(60)]
        shared = Elmo(*files, 1, dropout=0.0)
        results = self.run(lambda _: shared(ids)["elmo_representations"][0], [None] * 60)
        left = torch.stack(results).flatten(1)  # (60, n)
        right = torch.stack(expected).flatten(1)  # (60, n)
        # The first few differ from each other, all later ones are near the fixed point.
        distances = (left.unsqueeze(1) - right).abs().amax(2)  # (60, 60)
        assert (distances.amin(0) <= 1e-6).all() and (distances.amin(1) <= 1e-6).all()


def test_a_call_that_fails_leaves_the_carried_states(files, monkeypatch):
    ours, theirs = both(files)
    assert_same(embed(ours), embed(theirs))
    with monkeypatch.context() as patch:
        patch.setattr(CarriedState, "write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ours(batch_to_ids(SENTENCES))
    assert_same(*(e(batch_to_ids(SENTENCES))["elmo_representations"][0] for e in (ours, theirs)))
