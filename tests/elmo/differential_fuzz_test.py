"""
All that a user does with an `Elmo`, in random order, on ours and on AllenNLP's own module: after
each call the two agree. `FUZZ_SEQUENCES=2000 python -m pytest -m nightly` runs more sequences.
"""

import contextlib
import copy
import os
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from allennlp_elmo_plugin.elmo.elmo import Elmo, batch_to_ids
from tests.support import originals
from tests.support.pretend_gpu import gpu_for_tests
from tests.support.testing import write_random_elmo

TOLERANCE = 2e-5


def replicated(elmo, ids):
    """Run a replica as `torch.nn.parallel.replicate` makes it: parameters are attributes."""
    replicas = {module: module._replicate_for_data_parallel() for module in elmo.modules()}
    for module, replica in replicas.items():
        for key, child in module._modules.items():
            replica._modules[key] = None if child is None else replicas[child]
        for key, parameter in module._parameters.items():
            setattr(replica, key, None if parameter is None else parameter * 1.0)
    return replicas[elmo](ids)


def checkpointed(use_reentrant, elmo, ids):
    """Compute the layers again for the gradient."""

    def run(zero):
        output = elmo(ids)
        return output["mask"], *(mix + zero for mix in output["elmo_representations"])

    zero = torch.zeros((), device=ids.device, requires_grad=True)
    mask, *representations = checkpoint(run, zero, use_reentrant=use_reentrant)
    return {"mask": mask, "elmo_representations": representations}


class Pair:
    """Ours and AllenNLP's, on which everything is done in the same way."""

    def __init__(self, seed, folder, devices=("cpu",)):
        self.random = random.Random(seed)
        torch.manual_seed(seed)
        choose = self.random.choice
        lstm_dim, projection_dim = [(3, 3), (8, 6), (200, 64)][seed % 3]
        files = write_random_elmo(
            folder,
            seed=seed,
            lstm_dim=lstm_dim,
            projection_dim=projection_dim,
            n_layers=choose([1, 2, 3]),
            filters=choose([[(1, 3)], [(1, 4), (2, 6), (3, 8)], [(2, 50), (5, 78)]]),
            n_highway=choose([0, 1, 2]),
            activation=choose(["relu", "tanh"]),
        )
        arguments = {
            "num_output_representations": choose([1, 2]),
            "requires_grad": choose([True, False]),
            "do_layer_norm": choose([True, False, False]),
            "keep_sentence_boundaries": choose([True, False]),
            "dropout": 0.0,
        }
        self.ours = Elmo(*files, **arguments, max_cached_words=choose([0, 20, 50_000]))
        self.theirs = originals.elmo.Elmo(*files, **arguments)
        self.theirs.load_state_dict(self.ours.state_dict())
        self.names = [name for name, _ in self.ours.named_parameters()]
        self.devices, self.device = devices, torch.device("cpu")
        self.log = [arguments]

    @property
    def both(self):
        return self.ours, self.theirs

    def sentences(self):
        draw = self.random
        lengths = [draw.choice([0, 1, 2, 5, 9, 17]) for _ in range(draw.randint(1, 6))]
        return [[f"w{draw.randrange(40)}" * draw.randint(1, 3) for _ in range(n)] for n in lengths]

    def compare(self, *outputs):
        torch.testing.assert_close(
            *(tree_map(lambda tensor: tensor.detach().cpu(), output) for output in outputs),
            rtol=TOLERANCE,
            atol=TOLERANCE,
            msg=lambda text: f"{text}\n{self.log}",
        )

    # What may be called; each draws its own arguments.

    def infer(self):
        ids = batch_to_ids(self.sentences())
        with self.random.choice([torch.no_grad, torch.inference_mode])():
            ours = self.ours(ids.to(self.device))
        with torch.no_grad():
            self.compare(ours, self.theirs(ids))

    def embed_words(self):
        sentences = self.sentences()
        with torch.no_grad():
            theirs = self.theirs(batch_to_ids(sentences))
            self.compare(self.ours.embed_sentences(sentences), theirs)

    def gradient(self, run=torch.nn.Module.__call__):
        ids = batch_to_ids(self.sentences())
        outputs = []
        for elmo, device in zip(self.both, (self.device, torch.device("cpu"))):
            elmo.zero_grad()
            # Autocast doesn't change our numbers.
            autocast = elmo is self.ours and self.random.random() < 0.3
            with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
                outputs.append(run(elmo, ids.to(device)))
                representations = outputs[-1]["elmo_representations"]
                loss = sum(mix.square().sum() / max(1, mix.numel()) for mix in representations)
                if loss.requires_grad:
                    loss.backward()
        self.compare(*outputs)
        for (name, mine), its in zip(self.ours.named_parameters(), self.theirs.parameters()):
            # Of sentences without words AllenNLP has no gradient, where ours has zeros.
            expected = torch.zeros_like(its) if its.grad is None else its.grad
            assert mine.grad is not None or not expected.any(), (name, self.log)
            if mine.grad is not None:
                assert mine.requires_grad
                scale = max(1.0, float(expected.abs().max()))
                self.compare({name: mine.grad / scale}, {name: expected / scale})

    def gradient_of_a_replica(self):
        self.reset_states()
        self.gradient(replicated)
        self.reset_states()

    def gradient_from_checkpoints(self):
        self.reset_states(stateful=False)
        self.gradient(partial(checkpointed, self.random.choice([False, True])))
        self.reset_states()

    def update(self):
        self.gradient()
        kind = self.random.choice([torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad])
        for elmo in self.both:
            parameters = [p for p in elmo.parameters() if p.grad is not None]
            if parameters:
                kind(parameters, lr=0.001).step()
        # What Adam makes of rounding is not compared.
        self.theirs.load_state_dict({k: v.cpu() for k, v in self.ours.state_dict().items()})

    def choose_trainable(self, chosen=None):
        chosen = chosen or {name for name in self.names if self.random.random() < 0.3}
        for elmo in self.both:
            for name, parameter in elmo.named_parameters():
                parameter.requires_grad_(name in chosen)

    def edit(self):
        """Many numbers through `.data`; a single one counts after `train` or `eval`."""
        name, mode = self.random.choice(self.names), self.random.choice([None, True, False])
        value, start = self.random.uniform(0.5, 1.5), self.random.random()
        for elmo in self.both:
            data = dict(elmo.named_parameters())[name].data.view(-1)
            first = int(start * data.numel())
            data[first : None if mode is None else first + 1].mul_(value)
            if mode is not None:
                elmo.train(mode)

    def reset_states(self, stateful=True):
        for elmo in self.both:
            elmo._elmo_lstm._elmo_lstm.stateful = stateful
            elmo._elmo_lstm._elmo_lstm.reset_states()

    def copy(self):
        how = [copy.copy, copy.deepcopy, lambda elmo: pickle.loads(pickle.dumps(elmo))]
        self.ours = self.random.choice(how)(self.ours)

    def hook(self):
        """On the language model or its encoder, for one call."""
        name = self.random.choice(["_elmo_lstm", "_elmo_lstm._token_embedder"])

        def change(module, inputs, output):
            return tree_map(lambda x: 0.9 * x if x.is_floating_point() else x, output)

        handles = [elmo.get_submodule(name).register_forward_hook(change) for elmo in self.both]
        self.random.choice([self.infer, self.embed_words, self.gradient])()
        for handle in handles:
            handle.remove()

    def fail(self):
        """A call that is refused leaves everything as it was."""
        with pytest.raises(Exception, match="character"):
            self.ours(torch.full((2, 3, 50), 500, device=self.device))

    def threads(self):
        if self.device.type != "cpu":  # no thread but the first has the pretended GPU
            return
        batches = [batch_to_ids(self.sentences()) for _ in range(4)]
        self.reset_states(stateful=False)

        def run(ids):
            with torch.no_grad():
                return self.ours(ids)

        with ThreadPoolExecutor(4) as pool, torch.no_grad():
            for ours, ids in zip(list(pool.map(run, batches)), batches):
                self.compare(ours, self.theirs(ids))
                self.reset_states()

    def move(self):
        self.device = torch.device(self.random.choice(self.devices))
        self.ours.to(self.device)

    CALLS = (
        *[infer, embed_words, gradient, update] * 2,
        *(choose_trainable, edit, reset_states, copy, fail, threads, move, hook),
        *(gradient_of_a_replica, gradient_from_checkpoints),
    )


BY_DAY = range(3)
AT_NIGHT = range(len(BY_DAY), int(os.environ.get("FUZZ_SEQUENCES", 40)))


@pytest.mark.parametrize(
    "seed", [*BY_DAY, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in AT_NIGHT)]
)
def test_every_call_in_random_order(seed, tmp_path):
    with gpu_for_tests() if seed % 3 == 0 else contextlib.nullcontext() as gpu:
        pair = Pair(seed, tmp_path, ["cpu", "cuda:0"] if gpu else ["cpu"])
        for call in pair.random.sample(pair.CALLS, len(pair.CALLS)):
            pair.log.append(call.__name__)
            call(pair)


@pytest.mark.parametrize("seed", [0, 1])
def test_each_parameter_edited_and_alone_trained_or_not(seed, tmp_path):
    pair = Pair(seed, tmp_path)
    for name in pair.names:
        with torch.no_grad():
            for elmo in pair.both:
                values = dict(elmo.named_parameters())[name].view(-1)
                values[values.numel() // 3] += 0.5
        pair.infer()
        for chosen in ({name}, set(pair.names) - {name}):
            pair.choose_trainable(chosen)
            pair.log.append(chosen)
            pair.gradient()
