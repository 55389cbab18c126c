"""Elmo under what torch and its users do to modules: modes, hooks, edits, threads. The oracle is
AllenNLP's own module with the same weights."""

import copy
import itertools
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from allennlp.confidence_checks.normalization_bias_verification import NormalizationBiasVerification
from torch.nn.utils import prune
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
    @pytest.mark.parametrize("mode", ["train", "eval"])
    def test_an_edit_of_data_counts_after_train_or_eval(self, request, size, change, mode):
        ours, theirs = both(request.getfixturevalue(size))
        names = [name for name, each in ours.named_parameters() if each.dim() > 1]
        with torch.no_grad():
            embed(ours)
            for name in names:
                edit(ours, name, change), edit(theirs, name, change)
                getattr(ours, mode)()
                assert_same(embed(ours), embed(theirs))

    @pytest.mark.parametrize("size", ["files", "large_files"])
    def test_new_values_of_data_count_at_once(self, request, size):
        ours, theirs = both(request.getfixturevalue(size))
        changes = [
            lambda data: data.mul_(0.9),
            lambda data: data.copy_(data.flip(0)),
            lambda data: data.set_(data.clone() * 1.1),
            lambda data: torch.nn.init.normal_(data, std=0.1),
        ]
        with torch.no_grad():
            embed(ours)
            for name, _ in ours.named_parameters():
                for change in changes:
                    torch.manual_seed(0)
                    edit(ours, name, change)
                    torch.manual_seed(0)
                    edit(theirs, name, change)
                    assert_same(embed(ours), embed(theirs))

    def test_edits_in_place_count_at_once(self, files):
        ours, theirs = both(files)
        with torch.no_grad():
            embed(ours)
            for (name, mine), its in zip(ours.named_parameters(), theirs.parameters()):
                for each in (mine, its):
                    each.view(-1)[each.numel() // 3] += 0.5
                assert_same(embed(ours), embed(theirs)), name

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


LAYERS_OF_MODEL = [
    "_token_embedder.char_conv_1",
    "_token_embedder._highways",
    "_token_embedder._highways._layers.0",
    "_token_embedder._projection",
    "_elmo_lstm.forward_layer_0",
    "_elmo_lstm.forward_layer_0.input_linearity",
    "_elmo_lstm.backward_layer_1.state_linearity",
    "_elmo_lstm.forward_layer_1.state_projection",
]


class Doubled(torch.nn.Module):
    """As adapters are: with the `weight` of what they wrap."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    @property
    def weight(self):
        return self.module.weight

    def forward(self, *inputs):
        return self.module(*inputs) * 2


def hook(parent, name):
    return getattr(parent, name).register_forward_hook(lambda _, __, output: output).remove


def replace(parent, name):
    module = getattr(parent, name)
    setattr(parent, name, Doubled(module))
    return lambda: setattr(parent, name, module)


def replace_forward(parent, name):
    module = getattr(parent, name)
    module.forward = lambda *inputs, f=module.forward: f(*inputs)
    return lambda: delattr(module, "forward")


class TestLayers:
    """What others do to the layers in the language model, whose weights ours reads directly."""

    @pytest.mark.parametrize("name", LAYERS_OF_MODEL)
    @pytest.mark.parametrize("alter", [hook, replace, replace_forward])
    @pytest.mark.parametrize("initial_state", ["carried", "settled"])
    @pytest.mark.parametrize("requires_grad", [False, True])
    def test_altered_layers_are_refused(self, files, name, alter, initial_state, requires_grad):
        elmo = Elmo(*files, 1, requires_grad, dropout=0.0, initial_state=initial_state)
        expected = embed(elmo)  # words and states are kept now
        path, _, last = name.rpartition(".")
        restore = alter(elmo._elmo_lstm.get_submodule(path), last)
        message = f"the layer {last} of .* was replaced or has a hook"
        for call in (elmo, lambda _: elmo.embed_sentences(SENTENCES)):
            with pytest.raises(ValueError, match=message):
                call(batch_to_ids(SENTENCES))
        restore()
        assert_same(embed(elmo), expected)

    @pytest.mark.parametrize(
        "alter",
        [
            lambda layer: prune.l1_unstructured(layer, "weight", 0.4),
            torch.nn.utils.weight_norm,
            torch.nn.utils.parametrizations.weight_norm,
        ],
    )
    def test_weights_that_are_computed_at_each_call_are_refused(self, files, alter):
        elmo = Elmo(*files, 1, dropout=0.0)
        alter(elmo._elmo_lstm._elmo_lstm.forward_layer_0.input_linearity)
        with pytest.raises(ValueError, match="the layer input_linearity of ProjectedLstm"):
            embed(elmo)

    def test_allennlps_confidence_checks_may_have_hooks(self, files):
        elmo = Elmo(*files, 1, dropout=0.0)
        expected = embed(elmo)
        check = NormalizationBiasVerification(elmo)
        check.register_hooks()
        assert torch.equal(embed(elmo), expected)

    @pytest.mark.parametrize("how", ["hook", "forward"])
    def test_the_settled_state_follows_what_is_done_to_the_lstm(self, files, how):
        def double(value):
            return {k: 2 * v for k, v in value.items()}

        plain = embed(Elmo(*files, 1, dropout=0.0, initial_state="settled"))
        outputs = []
        for embed_before in (True, False):
            elmo = Elmo(*files, 1, dropout=0.0, initial_state="settled")
            if embed_before:
                embed(elmo)
            lstm = elmo._elmo_lstm._elmo_lstm
            if how == "hook":
                lstm.register_forward_pre_hook(lambda _, args: (double(args[0]), *args[1:]))
            else:
                lstm.forward = lambda first, *rest, f=lstm.forward: f(double(first), *rest)
            outputs.append(embed(elmo))
        assert_same(*outputs)
        assert not torch.allclose(outputs[0], plain)

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
    def test_a_reset_waits_for_a_running_call(self, files, rows, monkeypatch):
        """Else the call would put its states in place after the reset."""
        elmo, fresh = Elmo(*files, 1, dropout=0.0), Elmo(*files, 1, dropout=0.0)
        expected = embed(fresh)
        embed(elmo)
        lstm = elmo._elmo_lstm._elmo_lstm
        mask = rows if rows is None else torch.tensor(rows)
        thread = threading.Thread(target=lstm.reset_states, args=(mask,))

        def reset():
            if thread.ident is None:
                thread.start()
                thread.join(0.2)

        write = CarriedState.write
        with monkeypatch.context() as patch:
            patch.setattr(CarriedState, "write", lambda *args: reset() or write(*args))
            elmo(batch_to_ids(SENTENCES))
        thread.join()
        assert_same(elmo(batch_to_ids(SENTENCES))["elmo_representations"][0], expected)


def test_a_call_that_fails_leaves_the_carried_states(files, monkeypatch):
    ours, theirs = both(files)
    assert_same(embed(ours), embed(theirs))
    with monkeypatch.context() as patch:
        patch.setattr(CarriedState, "write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ours(batch_to_ids(SENTENCES))
    assert_same(*(e(batch_to_ids(SENTENCES))["elmo_representations"][0] for e in (ours, theirs)))
