"""Random sequences of calls on `Elmo` and on AllenNLP's own module, which agree after each.

`FUZZ_SEQUENCES=2000 python -m pytest tests/modules/differential_fuzz_test.py` runs more.
"""

import contextlib
import copy
import os
import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from allennlp_elmo_plugin.modules.elmo import Elmo, batch_to_ids
from tests.support import originals
from tests.support.pretend_gpu import gpu_for_tests
from tests.support.testing import write_random_elmo

N_SEQUENCES_BY_DEFAULT = 4
N_SEQUENCES = int(os.environ.get("FUZZ_SEQUENCES", 40))  # at night
N_CALLS = 12
WORDS = ["@@PADDING@@", *(f"w{i}" for i in range(40))]
TOLERANCE = 2e-5


class Pair:
    """Ours and AllenNLP's, on which everything is done in the same way."""

    def __init__(self, seed, folder, gpu):
        self.random = random.Random(seed)
        torch.manual_seed(seed)
        choose = self.random.choice
        lstm_dim, projection_dim = choose([(3, 2), (8, 6), (200, 64)])
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
            "vocab_to_cache": choose([None, None, WORDS]),
        }
        self.ours = Elmo(*files, **arguments, max_cached_words=choose([0, 20, 50_000]))
        self.theirs = originals.elmo.Elmo(*files, **arguments)
        self.theirs.load_state_dict(self.ours.state_dict())
        self.gpu = gpu
        self.device = "cpu"
        self.log = [arguments]

    @property
    def both(self):
        return self.ours, self.theirs

    def sentences(self):
        lengths = [
            self.random.choice([0, 1, 2, 5, 9, 17]) for _ in range(self.random.randint(1, 6))
        ]
        return [
            [f"w{self.random.randrange(40)}" * self.random.randint(1, 3) for _ in range(length)]
            for length in lengths
        ]

    def check(self, ours, theirs, what):
        torch.testing.assert_close(
            ours.detach().cpu(),
            theirs.detach(),
            rtol=TOLERANCE,
            atol=TOLERANCE,
            msg=lambda text: f"{what}: {text}\n{self.log}",
        )

    def forward(self, sentences, mode=torch.enable_grad):
        ids = batch_to_ids(sentences)
        with mode():
            ours = self.ours(ids.to(self.device))
        with torch.no_grad() if mode is torch.inference_mode else mode():
            theirs = self.theirs(ids)
        self.check(ours["mask"].float(), theirs["mask"].float(), "mask")
        for mine, its in zip(ours["elmo_representations"], theirs["elmo_representations"]):
            self.check(mine, its, "representation")
        return ours["elmo_representations"], theirs["elmo_representations"]

    # What may be called; each draws its own arguments.

    def infer(self):
        self.forward(self.sentences(), self.random.choice([torch.no_grad, torch.inference_mode]))

    def embed_words(self):
        sentences = self.sentences()
        with torch.no_grad():
            ours = self.ours.embed_sentences(sentences)["elmo_representations"]
            theirs = self.theirs(batch_to_ids(sentences))["elmo_representations"]
        for mine, its in zip(ours, theirs):
            self.check(mine, its, "embed_sentences")

    def cached_words(self):
        # AllenNLP takes a word whose vector has no positive number for padding.
        if not self.ours._has_cached_vocab or self.ours.get_output_dim() < 100:
            return
        sentences = [[word[:3].rstrip("w") for word in each] for each in self.sentences()]
        ids = batch_to_ids(sentences)
        words = torch.zeros(ids.shape[:2], dtype=torch.long)
        for row, sentence in zip(words, sentences):
            row[: len(sentence)] = torch.tensor([WORDS.index(w) for w in sentence] or 0)
        with torch.no_grad():
            ours = self.ours(ids.to(self.device), words.to(self.device))
            theirs = self.theirs(ids, words)
        self.check(ours["mask"].float(), theirs["mask"].float(), "mask of cached words")
        for mine, its in zip(ours["elmo_representations"], theirs["elmo_representations"]):
            self.check(mine, its, "cached words")

    def gradient(self):
        for elmo in self.both:
            elmo.zero_grad()
        outputs = self.forward(self.sentences())
        in_autocast = self.random.random() < 0.3
        for i, representations in enumerate(outputs):
            loss = sum(each.square().sum() / max(1, each.numel()) for each in representations)
            if loss.requires_grad:
                device = self.device.split(":")[0]
                with torch.autocast(device, torch.bfloat16, enabled=in_autocast and i == 0):
                    loss.backward()
        for (name, mine), its in zip(self.ours.named_parameters(), self.theirs.parameters()):
            # Of sentences without words AllenNLP has no gradient, where ours has zeros.
            expected = torch.zeros_like(its) if its.grad is None else its.grad
            assert mine.grad is not None or not expected.any(), (name, self.log)
            if mine.grad is not None:
                scale = max(1.0, float(expected.abs().max()))
                self.check(mine.grad / scale, expected / scale, name)

    def update(self):
        self.gradient()
        kind = self.random.choice([torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad])
        for elmo in self.both:
            parameters = [each for each in elmo.parameters() if each.grad is not None]
            if parameters:
                kind(parameters, lr=0.001).step()
        # What Adam makes of rounding is not compared.
        self.theirs.load_state_dict({k: v.cpu() for k, v in self.ours.state_dict().items()})

    def choose_trainable(self):
        chosen = [self.random.random() < 0.3 for _ in self.ours.parameters()]
        for elmo in self.both:
            for parameter, is_chosen in zip(elmo.parameters(), chosen):
                parameter.requires_grad_(is_chosen)

    def edit(self):
        name = self.random.choice([name for name, _ in self.ours.named_parameters()])
        value, seed = self.random.uniform(0.5, 1.5), self.random.random()
        for elmo in self.both:
            data = dict(elmo.named_parameters())[name].data
            data.view(-1)[int(seed * data.numel()) :].mul_(value)

    def reset_states(self):
        for elmo in self.both:
            elmo._elmo_lstm._elmo_lstm.reset_states()

    def switch_mode(self):
        mode = self.random.choice([True, False])
        for elmo in self.both:
            elmo.train(mode)

    def copy(self):
        how = self.random.choice(
            [copy.copy, copy.deepcopy, lambda elmo: pickle.loads(pickle.dumps(elmo))]
        )
        self.ours = how(self.ours)

    def reload(self):
        self.ours.load_state_dict(self.theirs.state_dict())

    def replace_parameter(self):
        name = self.random.choice([name for name, _ in self.ours.named_parameters()])
        module, _, key = name.rpartition(".")
        for elmo in self.both:
            parameter = dict(elmo.named_parameters())[name]
            new = torch.nn.Parameter(parameter.detach() * 0.9, parameter.requires_grad)
            setattr(elmo.get_submodule(module), key, new)

    def hook(self):
        """On the token embedder, for one call."""

        def change(module, inputs, output):
            return {**output, "token_embedding": output["token_embedding"] * 0.9}

        handles = [
            elmo._elmo_lstm._token_embedder.register_forward_hook(change) for elmo in self.both
        ]
        self.random.choice([self.infer, self.embed_words, self.gradient])()
        for handle in handles:
            handle.remove()

    def in_double(self):
        if self.device == "cpu":
            self.reset_states()
            for elmo in self.both:
                elmo.double()
            self.infer()
            self.reset_states()
            for elmo in self.both:
                elmo.float()

    def under_autocast(self):
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            self.ours(batch_to_ids(self.sentences()).to(self.device))
        self.reset_states()

    def fail(self):
        """A call that is refused leaves everything as it was."""
        with pytest.raises(Exception, match="character"):
            self.ours(torch.full((2, 3, 50), 500, device=self.device))

    def threads(self):
        batches = [self.sentences() for _ in range(4)]
        lstm = self.ours._elmo_lstm._elmo_lstm
        lstm.stateful = False

        def run(batch):
            with torch.no_grad():
                return self.ours(batch_to_ids(batch).to(self.device))["elmo_representations"][0]

        with ThreadPoolExecutor(4) as pool, torch.no_grad():
            for mine, batch in zip(pool.map(run, batches), batches):
                self.reset_states()
                its = self.theirs(batch_to_ids(batch))["elmo_representations"][0]
                self.check(mine, its, "threads")
        lstm.stateful = True
        self.reset_states()

    def move(self):
        if self.gpu is not None:
            self.device = self.random.choice(["cpu", "cuda:0"])
            self.ours.to(self.device)

    CALLS = (
        *[infer, embed_words, gradient, update] * 2,
        *(choose_trainable, edit, reset_states, switch_mode, copy, reload, under_autocast, fail),
        *(threads, move, cached_words, replace_parameter, hook, in_double),
    )


@pytest.mark.parametrize(
    "seed",
    [
        *range(N_SEQUENCES_BY_DEFAULT),
        *(
            pytest.param(seed, marks=pytest.mark.nightly)
            for seed in range(N_SEQUENCES_BY_DEFAULT, N_SEQUENCES)
        ),
    ],
)
def test_random_sequences_of_calls(seed, tmp_path):
    with contextlib.ExitStack() as stack:
        gpu = stack.enter_context(gpu_for_tests()) if seed % 3 == 0 else None
        pair = Pair(seed, tmp_path, gpu)
        for _ in range(N_CALLS):
            call = pair.random.choice(pair.CALLS)
            pair.log.append(call.__name__)
            call(pair)
