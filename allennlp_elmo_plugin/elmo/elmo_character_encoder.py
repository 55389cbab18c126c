"""AllenNLP's `_ElmoCharacterEncoder`: checks, completes and encodes ELMo's character ids."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch

from allennlp_elmo_plugin.bilm.character_encoder import CharacterEncoder
from allennlp_elmo_plugin.bilm.characters import (
    BEGIN_SENTENCE_WORD,
    END_SENTENCE_WORD,
    END_WORD,
    MAX_CHARACTERS_PER_TOKEN,
    N_CHARACTERS,
    PADDING,
    words_to_character_ids,
)
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.atomic import PathLike
from allennlp_elmo_plugin.files.json_file import read_json_object
from allennlp_elmo_plugin.pretrained.checkpoints.layout import ModelFiles
from allennlp_elmo_plugin.pretrained.checkpoints.published_layout import datasets
from allennlp_elmo_plugin.pretrained.checkpoints.saved_variables import load
from allennlp_elmo_plugin.pretrained.find_model import find_model


class ElmoCharacterEncoder(CharacterEncoder):
    """
    AllenNLP's `_ElmoCharacterEncoder` over our `CharacterEncoder`: it adds sentence boundaries to
    the character ids of sentences, and computes the vectors of the tokens.
    """

    reads_bytes = True
    _beginning_of_sentence_characters: torch.Tensor  # (max_characters,)
    _end_of_sentence_characters: torch.Tensor  # (max_characters,)

    def __init__(
        self,
        options_file: PathLike | None,
        weight_file: PathLike | None,
        requires_grad: bool = False,
        opened: tuple[BiLmOptions, ModelFiles] | None = None,
    ) -> None:
        with ExitStack() as stack:
            if opened is None:
                files = stack.enter_context(find_model(options_file, weight_file))
                options, weights = stack.enter_context(files.open(whole=False))
                encoder, parts = replace(options, n_layers=0), ("char_embed", "CNN")
                # Before the layers are made, of which the options may ask for any number
                weights.check(datasets(encoder), parts)
            else:  # The language model loads the parameters.
                options, files = opened
            if options.char_cnn is None:
                raise ValueError('the options have no "char_cnn", but Elmo reads characters')
            dim, project = options.projection_dim, options.project_characters
            super().__init__(options.char_cnn, dim, project, "meta")
            if opened is None:
                modules = torch.nn.ModuleDict({"_token_embedder": self})
                load(modules, datasets(encoder), weights, parts)
            # Programs read these attributes of AllenNLP's class.
            self._options = read_json_object(files.options) if files.is_pair else options.to_dict()
        self._weight_file = str(files.weights)
        self.requires_grad = requires_grad
        self.requires_grad_(requires_grad)
        words = [BEGIN_SENTENCE_WORD, END_SENTENCE_WORD]
        rows = words_to_character_ids(words, options.char_cnn.max_characters_per_token)
        for name, ids in zip(("beginning", "end"), torch.from_numpy(rows).long()):
            self.register_buffer(f"_{name}_of_sentence_characters", ids, persistent=False)

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """
        Embed character ids, shape `(batch_size, timesteps, 50)`. Return `token_embedding`, shape
        `(batch_size, timesteps + 2, output_dim)`, and `mask`, shape `(batch_size, timesteps + 2)`.
        """
        inputs = fit_width(inputs, self.options.max_characters_per_token)
        is_word = (inputs > 0).any(-1)  # (batch_size, timesteps)
        if inputs.numel():
            # One copy from a GPU, for both checks.
            low, high, *has_gap = torch.hstack([*torch.aminmax(inputs), gaps(is_word)]).tolist()
            if low < 0 or high >= N_CHARACTERS:
                raise ValueError(
                    f"got character ids from {low} to {high}, but they go from 0 (no word) to "
                    f"{N_CHARACTERS - 1}: are these word ids?"
                )
            check_gaps(has_gap)
        bounded, mask = add_boundaries(
            inputs,
            is_word.sum(-1),
            self._beginning_of_sentence_characters.to(inputs),
            self._end_of_sentence_characters.to(inputs),
        )  # (batch_size, timesteps + 2, max_characters)
        vectors = super().forward(bounded.flatten(0, 1))  # (batch_size * timesteps, output_dim)
        return {"token_embedding": vectors.view(*mask.shape, self.output_dim), "mask": mask}


def fit_width(inputs: torch.Tensor, max_characters: int) -> torch.Tensor:
    """
    Cut character ids, shape `(batch_size, timesteps, width)`, to the `max_characters` a word with
    which the model was trained. Return shape `(batch_size, timesteps, max_characters)`.
    """
    width = inputs.size(-1)
    is_wrong = inputs.dim() < 3 or inputs.is_floating_point() or width < max_characters
    if is_wrong or width not in (max_characters, MAX_CHARACTERS_PER_TOKEN):
        raise ValueError(
            f"got {inputs.dtype} of shape {tuple(inputs.shape)}, but the model reads character ids "
            f"of shape (batch_size, timesteps, {max_characters}); batch_to_ids gives 50. Pass "
            "indices of vocab_to_cache as word_inputs"
        )
    if width == max_characters:
        return inputs
    cut = inputs[..., :max_characters].clone()
    last = cut[..., -1]  # (batch_size, timesteps)
    last.masked_fill_((last != 0) & (last != PADDING + 1), END_WORD + 1)
    return cut


def gaps(is_word: torch.Tensor) -> torch.Tensor:
    """Return which rows of shape `(batch_size, timesteps)` have a word after padding."""
    return (is_word[:, 1:] & ~is_word[:, :-1]).any(1)


def check_gaps(has_gap: Sequence[int]) -> None:
    if any(has_gap):
        raise ValueError(
            f"row {has_gap.index(True)} of the batch has a word after zeros, which are padding: "
            "pad at the end"
        )


def add_boundaries(
    tokens: torch.Tensor, lengths: torch.Tensor, begin: torch.Tensor, end: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Put `begin` and `end`, shape `(dim,)` each, around sentences, shape `(batch_size, timesteps,
    dim)`, of `lengths`, shape `(batch_size,)`; as in AllenNLP, also around one without a token.
    Return shape `(batch_size, timesteps + 2, dim)`, and the mask of this.
    """
    bounded = torch.nn.functional.pad(tokens, (0, 0, 1, 1))  # (batch_size, timesteps + 2, dim)
    bounded[:, 0] = begin
    place = (lengths + 1).view(-1, 1, 1).expand(-1, 1, bounded.size(2))  # (batch_size, 1, dim)
    steps = torch.arange(bounded.size(1), device=tokens.device)
    return bounded.scatter(1, place, end.expand_as(place)), steps < (lengths + 2).unsqueeze(1)
