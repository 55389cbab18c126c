"""
bilm-tf's training step once more, as plainly as it can be written: dense tensors of double
precision, a loop over time, and automatic differentiation of everything. It shares nothing with the
package, and stands in for runs of bilm-tf that are not at hand.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F

DIRECTIONS = ("forward", "backward")
LEARNING_RATE = 0.2
INITIAL_ACCUMULATOR = 1.0
NORM = 10.0


class Stream(NamedTuple):
    """
    What one direction of one replica reads in a step: bilm-tf's character ids (B, T, 50), or
    vocabulary ids (B, T), like the targets; samples (n,) and the number of draws; masks of each
    layer's input (T, B, projection), and last of the output (B * T, projection), row by row.
    """

    tokens: torch.Tensor
    targets: torch.Tensor
    samples: tuple[torch.Tensor, int] | None = None
    masks: Sequence[torch.Tensor] | None = None


def log_expected_count(ids, n_words, n_samples, num_tries):
    """Of distinct log-uniform samples."""
    p = torch.log((ids.double() + 2) / (ids.double() + 1)) / math.log(n_words + 1)
    if num_tries == n_samples:
        return torch.log(p * n_samples)
    return torch.log(1 - (1 - p) ** num_tries)


class NaiveBiLm:
    """
    A model, its optimizer and the states it carries. The options are bilm-tf's, complete, and the
    variables have TensorFlow's names. Each replica has rows and states of its own.
    """

    def __init__(self, options, variables):
        self.options = options
        self.lstm = options["lstm"]
        self.directions = DIRECTIONS if options.get("bidirectional") else DIRECTIONS[:1]
        self.variables = {
            name: torch.tensor(values, dtype=torch.float64, requires_grad=True)
            for name, values in variables.items()
        }
        self.accumulators = {
            name: torch.full_like(values, INITIAL_ACCUMULATOR, requires_grad=False)
            for name, values in self.variables.items()
        }
        # For replica, direction and layer: c (B, dim) and m (B, projection).
        self.states = {}

    def token_vectors(self, tokens):
        """Shape (B, T, projection)."""
        v = self.variables
        if "char_cnn" not in self.options:
            return v["lm/embedding"][tokens]
        char_cnn = self.options["char_cnn"]
        n_rows, n_steps, n_characters = tokens.shape
        embedded = v["lm/char_embed"][tokens.reshape(-1, n_characters)]  # (B * T, 50, dim)
        maxima = []
        for i in range(len(char_cnn["filters"])):
            kernel = v[f"lm/CNN/W_cnn_{i}"][0].permute(2, 1, 0)  # (n, dim, width)
            convolved = F.conv1d(embedded.transpose(1, 2), kernel, v[f"lm/CNN/b_cnn_{i}"])
            activation = {"relu": torch.relu, "tanh": torch.tanh}[char_cnn["activation"]]
            maxima.append(activation(convolved.max(2).values))
        x = torch.cat(maxima, 1)  # (B * T, n_filters)
        for i in range(char_cnn.get("n_highway") or 0):
            p = f"lm/CNN_high_{i}/"
            carry = torch.sigmoid(x @ v[p + "W_carry"] + v[p + "b_carry"])
            transformed = torch.relu(x @ v[p + "W_transform"] + v[p + "b_transform"])
            x = carry * transformed + (1 - carry) * x
        if x.size(1) != self.lstm["projection_dim"]:
            x = x @ v["lm/CNN_proj/W_proj"] + v["lm/CNN_proj/b_proj"]
        return x.view(n_rows, n_steps, -1)

    def run_layer(self, replica, direction, layer, inputs):
        """Over inputs (T, B, projection), from the state that the last step left."""
        prefix = f"lm/RNN_{DIRECTIONS.index(direction)}/rnn/multi_rnn_cell/cell_{layer}/lstm_cell/"
        kernel, bias = self.variables[prefix + "kernel"], self.variables[prefix + "bias"]
        dim, projection_dim = self.lstm["dim"], self.lstm["projection_dim"]
        zero = tuple(inputs.new_zeros(inputs.size(1), size) for size in (dim, projection_dim))
        c, m = self.states.get((replica, direction, layer), zero)
        outputs = []
        for x in inputs:
            i, j, f, o = (torch.cat([x, m], 1) @ kernel + bias).chunk(4, 1)
            c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(j)
            if self.lstm.get("cell_clip"):
                c = c.clamp(-self.lstm["cell_clip"], self.lstm["cell_clip"])
            m = torch.sigmoid(o) * torch.tanh(c)
            if dim != projection_dim:
                m = m @ self.variables[prefix + "projection/kernel"]
                if self.lstm.get("proj_clip"):
                    m = m.clamp(-self.lstm["proj_clip"], self.lstm["proj_clip"])
            outputs.append(m)
        self.states[replica, direction, layer] = c.detach(), m.detach()
        return torch.stack(outputs)

    def loss(self, replica, direction, stream):
        n_layers = self.lstm.get("n_layers", 1)
        hidden = self.token_vectors(stream.tokens).transpose(0, 1)  # (T, B, projection)
        for layer in range(n_layers):
            if stream.masks is not None:
                hidden = hidden * stream.masks[layer]
            outputs = self.run_layer(replica, direction, layer, hidden)
            skip = self.lstm.get("use_skip_connections") and layer > 0
            hidden = outputs + hidden if skip else outputs
        top = hidden.transpose(0, 1).reshape(-1, hidden.size(2))  # (B * T, projection)
        if stream.masks is not None:
            top = top * stream.masks[n_layers]
        targets = stream.targets.reshape(-1)
        tied = self.options.get("share_embedding_softmax")
        weight = self.variables["lm/embedding" if tied else "lm/softmax/W"]
        bias = self.variables["lm/softmax/b"]
        if stream.samples is None:
            return F.cross_entropy(top @ weight.t() + bias, targets)
        ids, num_tries = stream.samples
        sizes = len(weight), len(ids), num_tries
        counts = [log_expected_count(words, *sizes) for words in (targets, ids)]
        true = (top * weight[targets]).sum(1) + bias[targets] - counts[0]
        sampled = top @ weight[ids].t() + bias[ids] - counts[1]
        sampled = sampled.masked_fill(targets[:, None] == ids, -math.inf)
        return (torch.logsumexp(torch.cat([true[:, None], sampled], 1), 1) - true).mean()

    def step(self, replicas):
        """
        Forward, backward and update; a stream for each replica and direction. Return losses,
        gradients, their norm and the states of all rows, named as in the files of bilm-tf's runs.
        """
        losses = {
            direction: torch.stack(
                [self.loss(k, direction, streams[direction]) for k, streams in enumerate(replicas)]
            ).mean()
            for direction in self.directions
        }
        total = torch.stack(list(losses.values())).mean()
        n_steps = replicas[0]["forward"].targets.size(1)
        for values in self.variables.values():
            values.grad = None
        (total * n_steps).backward()
        gradients = {
            name: torch.zeros_like(v) if v.grad is None else v.grad.clone()
            for name, v in self.variables.items()
        }
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
        largest = self.options.get("all_clip_norm_val", NORM)
        with torch.no_grad():
            for name, values in self.variables.items():
                gradient = gradients[name] * (largest / max(norm, largest))
                self.accumulators[name] += gradient**2
                values -= LEARNING_RATE * gradient / self.accumulators[name].sqrt()
        record = {f"loss_{direction}": loss.item() for direction, loss in losses.items()}
        record.update(total_loss=total.item(), grad_norm=norm)
        record.update((f"grad/{name}", gradient) for name, gradient in gradients.items())
        for (replica, direction, layer), state in self.states.items():
            for name, values in zip("cm", state):
                key = f"state/{direction}/layer{layer}/{name}"
                record[key] = torch.cat([record[key], values]) if replica else values
        return record
