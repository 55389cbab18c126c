"""
ELMo's language model in the equations of Peters et al. (2018), "Deep contextualized word
representations", section 3, and in bilm-tf's details. Read it first: it is short because it is
slow. It shares nothing with the package, and its variables have TensorFlow's names, so it is an
oracle of the tests.

Shapes: B texts, T tokens in each, D = `projection_dim`.
"""

import torch
import torch.nn.functional as F

DIRECTIONS = ("forward", "backward")


class NaiveBiLm:
    """The language model of complete options (those of bilm-tf) and its variables."""

    def __init__(self, options, variables):
        self.options = options
        self.lstm = options["lstm"]
        self.directions = DIRECTIONS if options.get("bidirectional") else DIRECTIONS[:1]
        self.variables = {
            name: torch.tensor(values, dtype=torch.float64, requires_grad=True)
            for name, values in variables.items()
        }

    def token_vectors(self, tokens):
        """
        Return x, the vectors of tokens without context, (B, T, D). Tokens are bilm-tf's character
        ids (B, T, 50), or vocabulary ids (B, T). Both directions share x.
        """
        v = self.variables
        if "char_cnn" not in self.options:
            return v["lm/embedding"][tokens]
        char_cnn = self.options["char_cnn"]
        activation = {"relu": torch.relu, "tanh": torch.tanh}[char_cnn["activation"]]
        characters = v["lm/char_embed"][tokens.flatten(0, 1)].transpose(1, 2)  # (B * T, dim, 50)
        # Of each filter, the largest response to the character n-grams of the word
        maxima = []
        for i in range(len(char_cnn["filters"])):
            filters = v[f"lm/CNN/W_cnn_{i}"][0].permute(2, 1, 0)  # (n_filters, dim, width)
            responses = F.conv1d(characters, filters, v[f"lm/CNN/b_cnn_{i}"])
            maxima.append(activation(responses.amax(2)))
        x = torch.cat(maxima, 1)  # (B * T, filters of all widths)
        # Highway layers: x = g * relu(W x + b) + (1 - g) * x
        for i in range(char_cnn.get("n_highway") or 0):
            p = f"lm/CNN_high_{i}/"
            g = torch.sigmoid(x @ v[p + "W_carry"] + v[p + "b_carry"])
            x = g * torch.relu(x @ v[p + "W_transform"] + v[p + "b_transform"]) + (1 - g) * x
        if x.size(1) != self.lstm["projection_dim"]:
            x = x @ v["lm/CNN_proj/W_proj"] + v["lm/CNN_proj/b_proj"]
        return x.unflatten(0, tokens.shape[:2])

    def run_layer(self, direction, layer, inputs, state=None):
        """
        Run an LSTM over inputs (T, B, D) from a state, or from zero. Return its outputs (T, B, D)
        and its last state, c (B, dim) and m (B, D).
        """
        cell = f"lm/RNN_{DIRECTIONS.index(direction)}/rnn/multi_rnn_cell/cell_{layer}/lstm_cell/"
        kernel, bias = self.variables[cell + "kernel"], self.variables[cell + "bias"]
        dim, projection_dim = self.lstm["dim"], self.lstm["projection_dim"]
        c, m = state or (inputs.new_zeros(inputs.size(1), size) for size in (dim, projection_dim))
        outputs = []
        for x in inputs:
            i, j, f, o = (torch.cat([x, m], 1) @ kernel + bias).chunk(4, 1)
            c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(j)
            if self.lstm.get("cell_clip"):
                c = c.clamp(-self.lstm["cell_clip"], self.lstm["cell_clip"])
            m = torch.sigmoid(o) * torch.tanh(c)
            if dim != projection_dim:
                m = m @ self.variables[cell + "projection/kernel"]
                if self.lstm.get("proj_clip"):
                    m = m.clamp(-self.lstm["proj_clip"], self.lstm["proj_clip"])
            outputs.append(m)
        return torch.stack(outputs), (c, m)

    def layers(self, direction, tokens, states=(), masks=None):
        """
        Return h_0 = x, h_1, ..., h_L of a direction, (T, B, D) each, and the last states of h_1 to
        h_L. `tokens` are in the order in which this direction reads them: the last one first in
        "backward". `masks` are of dropout, (T, B, D), for the inputs of h_1 to h_L.
        """
        hidden, last_states = [self.token_vectors(tokens).transpose(0, 1)], []
        for j in range(self.lstm.get("n_layers", 1)):
            inputs = hidden[-1] if masks is None else hidden[-1] * masks[j]
            outputs, state = self.run_layer(direction, j, inputs, states[j] if states else None)
            # From the second layer on, a residual connection
            skip = self.lstm.get("use_skip_connections") and j > 0
            hidden.append(outputs + inputs if skip else outputs)
            last_states.append(state)
        return hidden, last_states

    def softmax_variables(self):
        """Return W (words, D) and b (words), which both directions share."""
        v, tied = self.variables, self.options.get("share_embedding_softmax")
        return v["lm/embedding" if tied else "lm/softmax/W"], v["lm/softmax/b"]

    def log_likelihoods(self, top, targets):
        """Return log p(t | context) of each target, (n,), from h_L (n, D) of its context."""
        weight, bias = self.softmax_variables()
        return -F.cross_entropy(top @ weight.t() + bias, targets, reduction="none")


def elmo(layers, weights, gamma):
    """Return the vectors of a task, gamma * sum of s_j h_j: s = softmax of the task's weights."""
    s = torch.softmax(weights, 0)
    return gamma * sum(s_j * h_j for s_j, h_j in zip(s, layers))
