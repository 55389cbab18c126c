"""
Training compared with a plain re-implementation of bilm-tf's (`tests.support.naive_bilm`), for
models and settings of which there is no run of bilm-tf itself; where there is one, the two are
shown to be the same.
"""

import copy
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.training import gradient_descent_trainer
from allennlp.training.optimizers import Optimizer

from allennlp_elmo_plugin.bilm.log_uniform_sampler import Samples
from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.training.sparse_ddp_accelerator import (
    SparseDdpAccelerator,
    SparseDdpWrappedModel,
)
from tests.support.bilm_tf import REFERENCE, drawn_samples, load_run, read_vocabulary, variables
from tests.support.naive_bilm import NaiveBiLm, Stream
from tests.support.process_group import run_processes

N_STEPS = 10
ADAGRAD = Params({"type": "adagrad", "lr": 0.2, "initial_accumulator_value": 1.0, "eps": 0.0})
LOSS, VALUE, GRADIENT = 2e-6, 3e-6, 2e-5
"""
Largest deviations of losses; of states, variables and accumulators; and of gradients, relative to
the largest of a variable.
"""


@pytest.mark.parametrize("run", ["train_charcnn", "train_charcnn_sampled", "train_tokens"])
def test_the_naive_one_is_bilm_tf(run):
    options, arrays = load_run(run)
    initial = {name[5:]: values for name, values in arrays.items() if name[:5] == "init/"}
    naive = NaiveBiLm(options, initial)
    tokens = "tokens_characters" if "char_cnn" in options else "token_ids"
    for step in range(30):
        streams = {}
        for direction, suffix in (("forward", ""), ("backward", "_reverse")):
            samples = None
            if "sampled" in run:
                drawn = drawn_samples(arrays, direction, step)
                samples = drawn.ids, drawn.num_tries
            streams[direction] = Stream(
                torch.from_numpy(arrays[f"batch/{tokens}{suffix}"][step]).long(),
                torch.from_numpy(arrays[f"batch/next_token_id{suffix}"][step]).long(),
                samples,
            )
        result = naive.step([streams])
        assert result.loss == pytest.approx(float(arrays["total_loss"][step]), abs=LOSS)
        for direction, loss in result.losses.items():
            assert loss == pytest.approx(float(arrays[f"loss_{direction}"][step]), abs=LOSS)
        assert result.norm == pytest.approx(float(arrays["grad_norm"][step]), rel=2e-6)
        if step == 0 and "sampled" not in run:
            for name, gradient in result.gradients.items():
                np.testing.assert_allclose(gradient, arrays[f"grad0/{name}"], atol=VALUE)
        for (_, direction, layer), state in naive.states.items():
            for name, values in zip("cm", state):
                expected = arrays[f"state/{direction}/layer{layer}/{name}"][step]
                np.testing.assert_allclose(values, expected, atol=VALUE)
    for name, values in naive.variables.items():
        np.testing.assert_allclose(values.detach(), arrays[f"final/{name}"], atol=VALUE)
        np.testing.assert_allclose(naive.accumulators[name], arrays[f"accum/{name}"], atol=VALUE)


CHARACTERS = load_run("train_charcnn")[0]
TOKENS = {key: value for key, value in CHARACTERS.items() if key != "char_cnn"}


def changed(options: Dict[str, Any], **changes: Any) -> Dict[str, Any]:
    options = copy.deepcopy(options)
    for key, value in changes.items():
        if isinstance(value, dict):
            options[key].update(value)
        else:
            options[key] = value
    return options


CLIPPED = changed(CHARACTERS, all_clip_norm_val=0.5, lstm={"cell_clip": 0.05, "proj_clip": 0.02})
CASES = {
    "tanh, two highway layers": changed(
        CHARACTERS, char_cnn={"activation": "tanh", "n_highway": 2}
    ),
    "no highway layer": changed(CHARACTERS, char_cnn={"n_highway": 0}),
    "no projection of characters": changed(
        CHARACTERS, char_cnn={"filters": [[1, 2], [2, 2], [3, 4]]}
    ),
    "active clips": CLIPPED,
    "no clips": changed(CHARACTERS, lstm={"cell_clip": None, "proj_clip": None}),
    "no projection, no skip connections": changed(
        CHARACTERS, lstm={"dim": 8, "use_skip_connections": False}, char_cnn={"n_highway": 0}
    ),
    "one layer": changed(CHARACTERS, lstm={"n_layers": 1}),
    "three layers": changed(CHARACTERS, lstm={"n_layers": 3}),
    "tied softmax": changed(TOKENS, share_embedding_softmax=True),
    "tied softmax, sampled": changed(TOKENS, share_embedding_softmax=True, sample_softmax=True),
    "tokens, forward only": changed(TOKENS, bidirectional=False),
    "characters, forward only": changed(CHARACTERS, bidirectional=False),
    "dropout": changed(CHARACTERS, dropout=0.25),
    "dropout, tokens, sampled": changed(TOKENS, dropout=0.25, sample_softmax=True),
}


class GivenMasks(torch.nn.Module):
    """In the place of dropout: multiplies with the masks it was given, one a call."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: List[torch.Tensor] = []

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return vectors * self.masks.pop(0)


class Replica:
    """A model with what is random in it given, step by step, and the same for the naive one."""

    def __init__(self, model: BidirectionalLanguageModel, options: Dict[str, Any]) -> None:
        self.model = model
        self.options = options
        self.directions = ["forward", "backward"] if options["bidirectional"] else ["forward"]
        self.sampler = model.softmax.sampler
        self.samples: List[Samples] = []
        if self.sampler is not None:
            self.draw = self.sampler.sample
            self.sampler.sample = lambda: self.samples.pop(0)
        self.dropout = GivenMasks()
        if options["dropout"]:
            model.bilm.lstm.dropout = self.dropout

    def prepare(self, batch: Dict[str, torch.Tensor]) -> Dict[str, Stream]:
        """Draws for a step, and gives the draws to the model."""
        streams = {}
        outputs_masks = []
        for direction in self.directions:
            suffix = {"forward": "", "backward": "_reverse"}[direction]
            tokens, targets = batch[f"tokens{suffix}"], batch[f"targets{suffix}"]
            samples = masks = None
            if self.sampler is not None:
                drawn = self.draw()
                self.samples.append(drawn)
                samples = drawn.ids, drawn.num_tries
            if self.options["dropout"]:
                n_rows, n_steps = targets.shape
                keep = 1 - self.options["dropout"]
                dim = self.options["lstm"]["projection_dim"]
                n_layers = self.options["lstm"]["n_layers"]
                drawn_masks = torch.rand(n_layers + 1, n_steps, n_rows, dim).lt(keep).float() / keep
                # In the model's packed order, which is that of time.
                self.dropout.masks.extend(drawn_masks[:-1].reshape(n_layers, -1, dim))
                outputs_masks.append(drawn_masks[-1].reshape(-1, dim))
                masks = [*drawn_masks[:-1], drawn_masks[-1].transpose(0, 1).reshape(-1, dim)]
            if "char_cnn" in self.options:
                tokens = tokens - 1
            streams[direction] = Stream(tokens, targets, samples, masks)
        self.dropout.masks.extend(outputs_masks)
        return streams


def gradients_of(model: BidirectionalLanguageModel) -> Iterator[Tuple[str, np.ndarray]]:
    """By TensorFlow's names."""
    probe = copy.deepcopy(model)
    for parameter, original in zip(probe.parameters(), model.parameters()):
        parameter.data = original.grad.to_dense().clone()  # clipping changes it in place
    return variables(probe)


def read_batches(options: Dict[str, Any], vocab: Any) -> List[Any]:
    """The first batches of a process, which reads rows of its own."""
    reader = TruncatedBpttLmReader(
        batch_size=options["batch_size"],
        num_steps=options["unroll_steps"],
        max_characters_per_token=50 if "char_cnn" in options else None,
        bidirectional=options["bidirectional"],
    )
    loader = TruncatedBpttDataLoader(reader, str(REFERENCE / "data" / "train.txt"))
    loader.index_with(vocab)
    batches = list(loader)[:N_STEPS]
    assert len(batches) == N_STEPS
    return batches


@pytest.mark.parametrize("case", CASES)
def test_training_is_the_naive_one(case, tmp_path):
    options = CASES[case]
    vocab = read_vocabulary(tmp_path / "vocabulary")
    torch.manual_seed(1)
    model = BidirectionalLanguageModel(vocab, options=options)
    for parameter in model.parameters():
        # More than at bilm-tf's start, so that every part has a gradient that counts.
        torch.nn.init.normal_(parameter, std=0.2)
    replica = Replica(model, options)
    optimizer = Optimizer.from_params(
        ADAGRAD.duplicate(), model_parameters=list(model.named_parameters())
    )
    initial = {name: values.copy() for name, values in variables(model)}
    tied = options.get("share_embedding_softmax")
    if tied:
        del initial["lm/softmax/W"]
    naive = NaiveBiLm(options, initial)
    clipped = {"c": 0, "m": 0, "norm": 0}
    for batch in read_batches(options, vocab):
        streams = replica.prepare(batch)
        model.train().zero_grad()
        outputs = model(**batch)
        outputs["loss"].backward()
        assert not replica.samples and not replica.dropout.masks
        gradients = dict(gradients_of(model))
        norm = gradient_descent_trainer.clip_grad_norm_(
            model.parameters(), options["all_clip_norm_val"]
        )
        optimizer.step()

        expected = naive.step([streams])
        names = {"loss": expected.loss}
        names.update({f"{key}_loss": value for key, value in expected.losses.items()})
        assert set(outputs) == set(names)
        for name, value in names.items():
            assert outputs[name].item() == pytest.approx(value, abs=LOSS), name
        for name, gradient in expected.gradients.items():
            largest = float(gradient.abs().max())
            assert largest > 0, name
            np.testing.assert_allclose(
                gradients[name], gradient, atol=GRADIENT * largest, rtol=0, err_msg=name
            )
        assert float(norm) == pytest.approx(expected.norm, rel=2e-6)
        clipped["norm"] += expected.norm > options["all_clip_norm_val"]
        for (_, direction, layer), state in naive.states.items():
            found_state = model.bilm.lstm.part(model._carried[True].states, direction, layer)
            for name, found, values in zip("cm", reversed(found_state), state):
                np.testing.assert_allclose(found, values, atol=VALUE, rtol=0)
                bound = options["lstm"][{"c": "cell_clip", "m": "proj_clip"}[name]]
                clipped[name] += int((values.abs() == bound).sum()) if bound else 0
    if options is CLIPPED:
        # The case is what it says.
        assert clipped["c"] > 500 and clipped["m"] > 200 and clipped["norm"] == N_STEPS

    for name, values in variables(model):
        if not (tied and name == "lm/softmax/W"):
            wanted = naive.variables[name].detach()
            np.testing.assert_allclose(values, wanted, atol=VALUE, rtol=0, err_msg=name)
    for parameter in model.parameters():
        parameter.data = optimizer.state[parameter]["sum"]
    for name, values in variables(model):
        if not (tied and name == "lm/softmax/W"):
            # The model has the carry gates with the opposite sign.
            wanted = naive.accumulators[name]
            np.testing.assert_allclose(abs(values), wanted, atol=VALUE, rtol=0, err_msg=name)


def train_tower(rank: int, options: Dict[str, Any], folder: str) -> Dict[str, Any]:
    """Ten steps of one process of a group: what it drew and what it computed."""
    vocab = read_vocabulary(Path(folder) / f"vocabulary_{rank}")
    torch.manual_seed(1 + rank)  # the first process's weights count
    model: Any = BidirectionalLanguageModel(vocab, options=options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model, wrapped = SparseDdpAccelerator().wrap_model(model)
    initial = {name: values.copy() for name, values in variables(model)}
    optimizer = Optimizer.from_params(
        ADAGRAD.duplicate(), model_parameters=list(model.named_parameters())
    )
    torch.manual_seed(rank)
    replica = Replica(model, options)
    steps = []
    for batch in read_batches(options, vocab):
        streams = {key: tuple(stream) for key, stream in replica.prepare(batch).items()}
        wrapped.model.train()
        optimizer.zero_grad()
        outputs = wrapped.model(**batch)
        outputs["loss"].backward()
        if isinstance(wrapped, SparseDdpWrappedModel):
            wrapped.average_sparse_gradients()
        norm = wrapped.clip_grad_norm_(options["all_clip_norm_val"])
        optimizer.step()
        steps.append((streams, {key: float(value) for key, value in outputs.items()}, float(norm)))
    return {
        "initial": initial,
        "steps": steps,
        "final": {name: values.copy() for name, values in variables(model)},
        "parameters": {name: p.detach() for name, p in model.named_parameters()},
    }


@pytest.mark.parametrize(
    "options",
    [
        CHARACTERS,
        changed(CHARACTERS, sample_softmax=True),
        changed(TOKENS, share_embedding_softmax=True),
        changed(TOKENS, share_embedding_softmax=True, sample_softmax=True),
        changed(TOKENS, dropout=0.25, sample_softmax=True, bidirectional=False),
    ],
    ids=["characters", "characters, sampled", "tied", "tied, sampled", "tokens, forward only"],
)
def test_two_processes_are_two_towers(options, tmp_path):
    """bilm-tf's towers on two GPUs: each has other rows and draws, and gradients are averaged."""
    towers = run_processes(2, tmp_path, train_tower, options, str(tmp_path))
    for name, parameter in towers[0]["parameters"].items():
        assert torch.equal(parameter, towers[1]["parameters"][name]), name
    initial = towers[0]["initial"]
    tied = options.get("share_embedding_softmax")
    if tied:
        del initial["lm/softmax/W"]
    naive = NaiveBiLm(options, initial, 2)
    for parts in zip(*(tower["steps"] for tower in towers)):
        streams = [
            {direction: Stream(*values) for direction, values in part[0].items()} for part in parts
        ]
        if options.get("sample_softmax"):
            drawn = [stream["forward"].samples[0] for stream in streams]
            assert not torch.equal(*drawn)
        expected = naive.step(streams)
        found = [part[1]["loss"] for part in parts]
        assert np.mean(found) == pytest.approx(expected.loss, abs=LOSS)
        assert [part[2] for part in parts] == pytest.approx([expected.norm] * 2, rel=2e-6)
    for name, values in towers[0]["final"].items():
        if not (tied and name == "lm/softmax/W"):
            wanted = naive.variables[name].detach()
            np.testing.assert_allclose(values, wanted, atol=VALUE, rtol=0, err_msg=name)
