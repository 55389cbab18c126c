"""Elmo under what torch and its users do to modules: modes, hooks, edits, threads. The oracle is
AllenNLP's own module with the same weights."""

import copy
import itertools
import random
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

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
    """Large enough for oneDNN, and for checksums by torch."""
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

    def test_a_bias_of_a_linear_layer_alone(self, files):
        ours, theirs = both(files)
        for elmo in (ours, theirs):
            encoder = elmo._elmo_lstm._token_embedder
            encoder._projection.bias.requires_grad_(True)
            embed(elmo).square().sum().backward()
        assert_same(*(e._elmo_lstm._token_embedder._projection.bias.grad for e in (ours, theirs)))


EDITS = {
    "one number": lambda data: data.view(-1)[7:8].add_(1.0),
    "a row": lambda data: data[1].mul_(-1.0),
    "two rows exchanged": lambda data: data.copy_(data.flip(0)),
    "by numpy": lambda data: data.numpy().__setitem__((0, 0), 2.0),
}


class TestChangesOfParameters:
    @pytest.mark.parametrize("change", EDITS.values(), ids=EDITS.keys())
    @pytest.mark.parametrize("size", ["files", "large_files"])
    def test_an_edit_of_data_counts_at_once(self, request, size, change):
        ours, theirs = both(request.getfixturevalue(size))
        ours.eval(), theirs.eval()
        names = [name for name, each in ours.named_parameters() if each.dim() > 1]
        with torch.no_grad():
            embed(ours)
            for name in names:
                edit(ours, name, change), edit(theirs, name, change)
                assert_same(embed(ours), embed(theirs))

    @pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, "fused", "lbfgs"])
    def test_updates_count_at_once(self, files, optimizer):
        ours, theirs = both(files, requires_grad=True)
        if optimizer == "fused":
            try:
                torch.optim.Adam(ours.parameters(), fused=True)
            except (TypeError, RuntimeError) as error:
                pytest.skip(str(error))
        optimizers = []
        for elmo in (ours, theirs):
            parameters = [each for each in elmo.parameters() if each.requires_grad]
            if optimizer == "fused":
                optimizers.append(torch.optim.Adam(parameters, lr=0.01, fused=True))
            elif optimizer == "lbfgs":
                optimizers.append(torch.optim.LBFGS(parameters, lr=0.01, max_iter=3))
            else:
                optimizers.append(optimizer(parameters, lr=0.01))
        for _ in range(3):
            for elmo, each in zip((ours, theirs), optimizers):

                def closure(elmo=elmo, each=each):
                    each.zero_grad()
                    loss = embed(elmo).square().sum()
                    loss.backward()
                    return loss

                each.step(closure)
            with torch.no_grad():
                assert_same(embed(ours), embed(theirs), 1e-4)

    def test_a_vector_of_all_parameters(self, files):
        ours, theirs = both(files)
        with torch.no_grad():
            embed(ours)
            for elmo in (ours, theirs):
                vector = torch.nn.utils.parameters_to_vector(elmo.parameters())
                torch.nn.utils.vector_to_parameters(vector * 1.5, elmo.parameters())
            assert_same(embed(ours), embed(theirs))

    def test_settled_state_follows_every_update_without_a_search_from_zero(self, files):
        elmo = Elmo(*files, 1, requires_grad=True, dropout=0.0, initial_state="settled")
        bilm = elmo._elmo_lstm
        passes = []
        run_vectors = type(bilm).run_vectors

        def count(*args, **kwargs):
            passes.append(args[1].size(0) == 2)
            return run_vectors(bilm, *args[1:], **kwargs)

        optimizer = torch.optim.SGD(elmo.parameters(), lr=0.001)
        counts = []
        type(bilm).run_vectors, original = count, run_vectors
        try:
            for _ in range(4):
                passes.clear()
                elmo(batch_to_ids(SENTENCES))["elmo_representations"][0].square().sum().backward()
                counts.append(sum(passes))
                optimizer.step()
        finally:
            type(bilm).run_vectors = original
        assert max(counts[1:]) < counts[0]
        fresh = copy.deepcopy(elmo)
        assert_same(*(e(batch_to_ids(SENTENCES))["elmo_representations"][0] for e in (elmo, fresh)))
        elmo.eval(), fresh.eval()
        with torch.no_grad():
            assert torch.equal(
                *(e(batch_to_ids(SENTENCES))["elmo_representations"][0] for e in (elmo, fresh))
            )


class TestModes:
    @pytest.mark.parametrize("first", ["autocast", "inference", "normal"])
    @pytest.mark.parametrize("requires_grad", [False, True])
    @pytest.mark.parametrize("size", ["files", "large_files"])
    def test_no_mode_leaves_anything_to_the_next_call(self, request, size, first, requires_grad):
        ours, theirs = both(request.getfixturevalue(size), requires_grad=requires_grad)
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

    @pytest.mark.parametrize("forward", [True, False])
    @pytest.mark.parametrize("backward", [True, False])
    @pytest.mark.parametrize(
        "frozen", ["", "char_conv", "_char_embedding", "_token_embedder", "lstm_"]
    )
    @pytest.mark.parametrize("do_layer_norm", [False, True])
    def test_autocast_does_not_change_gradients(
        self, files, forward, backward, frozen, do_layer_norm
    ):
        ours, _ = both(files, requires_grad=True, do_layer_norm=do_layer_norm)
        for name, each in ours.named_parameters():
            each.requires_grad_(not frozen or frozen not in name)

        def gradients(in_forward, in_backward):
            ours.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=in_forward):
                loss = embed(ours).square().sum()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=in_backward):
                loss.backward()
            return {
                name: each.grad.clone()
                for name, each in ours.named_parameters()
                if each.requires_grad
            }

        expected = gradients(False, False)
        for name, grad in gradients(forward, backward).items():
            assert torch.equal(grad, expected[name]), name

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

    @pytest.mark.parametrize("convert", [torch.nn.Module.double, torch.nn.Module.bfloat16])
    def test_other_types(self, files, convert):
        ours, theirs = both(files)
        embed(ours)
        convert(ours), convert(theirs)
        with torch.no_grad():
            output = embed(ours)
        assert output.dtype == next(ours.parameters()).dtype
        if convert is torch.nn.Module.double:
            reference = originals.elmo.Elmo(*files, 1, dropout=0.0)
            assert_same(output, embed(reference).double())


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
        assert_same(
            ours.embed_sentences(SENTENCES)["elmo_representations"][0].sum(),
            ours(batch_to_ids(SENTENCES))["elmo_representations"][0].sum(),
            1,
        )
        assert set(seen[ours]) == {"bilm", "encoder"}

    @pytest.mark.parametrize("requires_grad", [False, True])
    def test_hooks_of_the_layers(self, files, requires_grad):
        ours, _ = both(files, requires_grad=requires_grad)
        plain = embed(ours)
        seen = []
        lstm = ours._elmo_lstm._elmo_lstm
        for direction, layer in itertools.product(("forward", "backward"), range(2)):
            lstm.layer(direction, layer).register_forward_pre_hook(lambda *_: seen.append(1))
        lstm.forward_layer_0.register_forward_hook(
            lambda _, inputs, output: (output[0] * 2, output[1])
        )
        assert not torch.allclose(embed(ours), plain)
        assert len(seen) == 4

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

    def test_safetensors(self, files, tmp_path):
        safetensors = pytest.importorskip("safetensors.torch")
        ours, _ = both(files, requires_grad=True)
        safetensors.save_file(ours.state_dict(), str(tmp_path / "elmo.safetensors"))
        other = Elmo(*files, 1, dropout=0.0)
        other.load_state_dict(safetensors.load_file(str(tmp_path / "elmo.safetensors")))
        assert torch.equal(embed(other), embed(ours.requires_grad_(False)))

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


PARTS = {
    "convolution": "_token_embedder.char_conv_1",
    "highways": "_token_embedder._highways",
    "highway": "_token_embedder._highways._layers.0",
    "projection": "_token_embedder._projection",
    "inputs": "_elmo_lstm.forward_layer_0.input_linearity",
    "state": "_elmo_lstm.backward_layer_1.state_linearity",
    "outputs": "_elmo_lstm.forward_layer_1.state_projection",
}
# Modules with one weight, of which AllenNLP calls each at every step.
WITH_WEIGHTS = [part for part in PARTS if part != "highways"]


class Doubled(torch.nn.Module):
    """As adapters are: with the `weight` of what they wrap."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.factor = torch.nn.Parameter(torch.tensor(2.0))

    @property
    def weight(self):
        return self.module.weight

    @property
    def bias(self):
        return self.module.bias

    def forward(self, inputs):
        return self.module(inputs) * self.factor


def part_of(elmo, part):
    """A part's parent, its name in it, and itself."""
    *path, name = PARTS[part].split(".")
    parent = elmo._elmo_lstm.get_submodule(".".join(path))
    return parent, name, getattr(parent, name)


class TestParts:
    """What others do to the modules in the language model, whose weights ours reads directly."""

    @pytest.mark.parametrize("part", PARTS)
    @pytest.mark.parametrize("initial_state", ["carried", "settled"])
    def test_hooks(self, files, part, initial_state):
        ours, theirs = both(files)
        if initial_state == "settled":
            ours = Elmo(*files, 1, dropout=0.0, initial_state="settled")
        plain = embed(ours)  # words and states are kept now
        handles = [
            part_of(elmo, part)[2].register_forward_hook(lambda _, __, output: output * 2)
            for elmo in (ours, theirs)
        ]
        hooked = embed(ours)
        words = ours.embed_sentences(SENTENCES)["elmo_representations"][0]
        if initial_state == "settled":
            assert not torch.allclose(hooked, plain, atol=1e-3)
            assert_same(words, hooked)
        else:
            assert_same(hooked, embed(theirs))
            assert_same(words, theirs(batch_to_ids(SENTENCES))["elmo_representations"][0])
        for handle in handles:
            handle.remove()
        assert_same(embed(ours), plain)

    @pytest.mark.parametrize(
        "name", ["", ".dropout", ".forward_layer_0", ".backward_layer_1.state_linearity"]
    )
    @pytest.mark.parametrize("how", ["hook", "forward"])
    def test_the_settled_state_follows_what_is_done_to_the_lstm(self, files, name, how):
        def double(value):
            return {k: 2 * v for k, v in value.items()} if isinstance(value, dict) else 2 * value

        plain = embed(Elmo(*files, 1, dropout=0.0, initial_state="settled"))
        outputs = []
        for embed_before in (True, False):
            elmo = Elmo(*files, 1, dropout=0.0, initial_state="settled")
            if embed_before:
                embed(elmo)
            part = elmo._elmo_lstm.get_submodule("_elmo_lstm" + name)
            if how == "hook":
                part.register_forward_pre_hook(lambda _, args: (double(args[0]), *args[1:]))
            else:
                part.forward = lambda first, *rest, f=part.forward: f(double(first), *rest)
            outputs.append(embed(elmo))
        assert_same(*outputs)
        assert not torch.allclose(outputs[0], plain)

    @pytest.mark.parametrize("part", WITH_WEIGHTS)
    @pytest.mark.parametrize("requires_grad", [False, True])
    def test_adapters(self, files, part, requires_grad):
        ours, theirs = both(files, requires_grad=requires_grad)
        for elmo in (ours, theirs):
            embed(elmo)
            parent, name, module = part_of(elmo, part)
            setattr(parent, name, Doubled(module)) if not name.isdigit() else parent.__setitem__(
                int(name), Doubled(module)
            )
            embed(elmo).square().sum().backward()
        assert_same(embed(ours), embed(theirs))
        for mine, its in zip(ours.parameters(), theirs.parameters()):
            assert (mine.grad is None) == (its.grad is None)
            if mine.grad is not None:
                assert_same(mine.grad, its.grad)

    @pytest.mark.parametrize("part", WITH_WEIGHTS)
    @pytest.mark.parametrize("tool", ["prune", "weight_norm"])
    def test_weights_that_are_computed_at_each_call(self, files, part, tool):
        ours, theirs = both(files, requires_grad=True)
        optimizers = []
        for elmo in (ours, theirs):
            embed(elmo)
            module = part_of(elmo, part)[2]
            if tool == "prune":
                prune.l1_unstructured(module, "weight", 0.4)
            else:
                torch.nn.utils.weight_norm(module)
            optimizers.append(torch.optim.SGD(elmo.parameters(), lr=0.01))
        for _ in range(2):
            for elmo, optimizer in zip((ours, theirs), optimizers):
                optimizer.zero_grad()
                embed(elmo).square().sum().backward()
                optimizer.step()
            with torch.no_grad():
                assert_same(embed(ours), embed(theirs))
        theirs.load_state_dict({key: 0.9 * each for key, each in theirs.state_dict().items()})
        ours.load_state_dict(theirs.state_dict())
        with torch.no_grad():
            assert_same(embed(ours), embed(theirs))

    def test_dynamic_quantization(self, files):
        ours, _ = both(files)
        quantized = torch.quantization.quantize_dynamic(ours, {torch.nn.Linear})
        with torch.no_grad():
            assert_same(embed(quantized), embed(ours), 0.1)

    @pytest.mark.parametrize("initial_state", ["carried", "settled", "zero"])
    def test_layers_inside_another_module(self, files, initial_state):
        plain, wrapped = (
            Elmo(*files, 1, dropout=0.0, initial_state=initial_state).eval() for _ in range(2)
        )

        class Wrapper(torch.nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module

            def forward(self, *inputs):
                return self.module(*inputs)

        bilm = wrapped._elmo_lstm
        bilm._elmo_lstm = Wrapper(bilm._elmo_lstm)
        ids = batch_to_ids(SENTENCES)
        for _ in range(2):
            first, second = (elmo(ids)["elmo_representations"][0] for elmo in (plain, wrapped))
            assert_same(first, second)

    @pytest.mark.parametrize("how", ["hook", "wrapped"])
    @pytest.mark.parametrize("initial_state", ["carried", "settled", "zero"])
    def test_another_encoder_reads_long_sentences_too(self, files, how, initial_state):
        class Wrapper(torch.nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module

            def forward(self, inputs):
                return double(self.module(inputs))

        def double(output):
            return {**output, "token_embedding": 2 * output["token_embedding"]}

        whole, cut = (ElmoEmbedder(*files, initial_state=initial_state) for _ in range(2))
        cut._segment_steps = 2
        for embedder in (whole, cut):
            bilm = embedder.elmo_bilm
            if how == "hook":
                bilm._token_embedder.register_forward_hook(lambda *args: double(args[-1]))
            else:
                bilm._token_embedder = Wrapper(bilm._token_embedder)
        for _ in range(2):
            for one, other in zip(whole.embed_batch(SENTENCES), cut.embed_batch(SENTENCES)):
                assert_same(torch.from_numpy(one), torch.from_numpy(other))

    @pytest.mark.parametrize("name", ["_elmo_lstm", "_elmo_lstm._token_embedder"])
    @pytest.mark.parametrize("how", ["instance", "class", "wrapped"])
    def test_another_forward(self, files, name, how):
        ours, theirs = both(files)

        def double(output):
            return {
                key: [2 * each for each in value]
                if isinstance(value, list)
                else 2 * value
                if key == "token_embedding"
                else value
                for key, value in output.items()
            }

        class Wrapper(torch.nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module
                self.num_layers = 3

            def forward(self, *inputs):
                return double(self.module(*inputs))

        for elmo in (ours, theirs):
            embed(elmo)
            module = elmo.get_submodule(name)
            original = type(module).forward
            if how == "instance":
                module.forward = lambda *inputs, f=module.forward: double(f(*inputs))
            elif how == "class":

                class Doubling(type(module)):
                    def forward(self, *inputs, f=original):
                        return double(f(self, *inputs))

                module.__class__ = Doubling
            elif name == "_elmo_lstm":
                continue  # as `module` of Elmo, another test has it
            else:
                elmo._elmo_lstm._token_embedder = Wrapper(module)
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

    @pytest.mark.parametrize("max_cached_words", [0, 100, 50_000])
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

    def test_calls_from_a_settled_state_do_not_wait_for_each_other(self, files):
        shared = Elmo(*files, 1, dropout=0.0, initial_state="settled")
        expected = embed(shared)
        with ThreadPoolExecutor(1) as pool, shared._elmo_lstm.settled_state().lock:
            assert_same(pool.submit(embed, shared).result(timeout=30), expected)

    def test_one_embedder_for_all(self, files):
        batches = self.batches()
        expected = list(map(ElmoEmbedder(*files).embed_batch, batches))
        shared = ElmoEmbedder(*files)
        for _ in range(2):
            for mine, other in zip(self.run(shared.embed_batch, batches), expected):
                for left, right in zip(mine, other):
                    assert abs(left - right).max() <= 1e-6

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

    def test_carried_states_of_long_sentences(self, files):
        """Each sentence is run in segments, between which another thread must not come."""

        def sequence(run):
            embedder = ElmoEmbedder(*files, initial_state="carried")
            embedder._segment_steps = 2
            arrays = run(embedder.embed_batch, [SENTENCES] * 40)
            return torch.stack([torch.from_numpy(each[0]) for each in arrays])

        expected = sequence(lambda function, batches: list(map(function, batches)))
        results = sequence(self.run)
        distances = (results.unsqueeze(1) - expected).flatten(2).abs().amax(2)  # (40, 40)
        assert (distances.amin(0) <= 1e-6).all() and (distances.amin(1) <= 1e-6).all()

    @pytest.mark.parametrize("rows", [None, [True] * len(SENTENCES)])
    def test_a_reset_waits_for_a_running_call(self, files, rows):
        """Else the call would put its states in place after the reset."""
        elmo, fresh = Elmo(*files, 1, dropout=0.0), Elmo(*files, 1, dropout=0.0)
        expected = embed(fresh)
        embed(elmo)
        lstm = elmo._elmo_lstm._elmo_lstm
        mask = rows if rows is None else torch.tensor(rows)
        thread = threading.Thread(target=lstm.reset_states, args=(mask,))

        def reset(*_):
            thread.start()
            thread.join(0.2)

        handle = lstm.forward_layer_1.register_forward_hook(reset)
        elmo(batch_to_ids(SENTENCES))
        thread.join()
        handle.remove()
        assert_same(elmo(batch_to_ids(SENTENCES))["elmo_representations"][0], expected)


def test_a_call_that_fails_leaves_the_carried_states(files):
    ours, theirs = both(files)
    assert_same(embed(ours), embed(theirs))
    handle = ours._elmo_lstm._elmo_lstm.backward_layer_1.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ours(batch_to_ids(SENTENCES))
    handle.remove()
    assert_same(*(e(batch_to_ids(SENTENCES))["elmo_representations"][0] for e in (ours, theirs)))


def test_an_interrupt_at_any_line_leaves_the_next_call_as_ever(files):
    """As of a notebook's user: a call that never ends would keep the weights as they are."""
    ours, theirs = both(files)
    embed(ours)

    def interrupted_at(target):
        n_lines = 0

        def count(frame, event, _):
            nonlocal n_lines
            if "model_call" not in frame.f_code.co_filename:
                return None
            if event == "line":
                n_lines += 1
                if n_lines == target:
                    raise KeyboardInterrupt
            return count

        sys.settrace(count)
        try:
            embed(ours)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False

    name = "_elmo_lstm._elmo_lstm.forward_layer_0.input_linearity.weight"
    with torch.no_grad():
        for target in itertools.count(1):
            if not interrupted_at(target):
                break
            edit(ours, name, lambda data: data.mul_(1.01))
            edit(theirs, name, lambda data: data.mul_(1.01))
            if target % 10 == 0:
                assert_same(embed(ours), embed(theirs))
        assert target > 100
        assert_same(embed(ours), embed(theirs))
