"""The options of a language model, as bilm-tf's options.json has them."""

import functools
import json
import logging
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from allennlp_elmo_plugin.bilm.characters import N_CHARACTERS
from allennlp_elmo_plugin.files.atomic import PathLike, write_text
from allennlp_elmo_plugin.files.json_file import escaped, read_json_object

logger = logging.getLogger(__name__)

_SECTIONS = ("lstm", "char_cnn", "char_cnn.embedding")
# Keys that describe the training, not the model: they are only kept and written back.
_TRAINING_KEYS = {
    *("all_clip_norm_val", "batch_size", "learning_rate"),
    *("n_epochs", "n_train_tokens", "unroll_steps"),
}
_MAX_INT = 2**31 - 1
_MANY_SAMPLES = 8192  # bilm-tf's negative samples, for a much larger vocabulary

Rule = tuple[str, Callable[[Any], bool]]
"""What a value must be, as errors say it, and a function that checks it."""


def _whole(least: int, most: int = _MAX_INT) -> Rule:
    text = f"a whole number from {least} to {most}"
    return text, lambda value: type(value) is int and least <= value <= most


def _are_filters(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value)
        and all(_whole(1)[1](number) for pair in value for number in pair)
    )


_FILTERS = f"a list of [width, number] pairs, whole numbers from 1 to {_MAX_INT}", _are_filters
_FLAG = "true or false", lambda value: isinstance(value, bool)
_CLIP = "a number above 0, or null", lambda value: _is_number(value) and 0 < value < 1e300
_DROPOUT = "a number, at least 0 and below 1", lambda value: _is_number(value) and 0 <= value < 1
_ACTIVATION = '"relu" or "tanh"', lambda value: value in ("relu", "tanh")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _option(key: str, rule: Rule, default: Any = MISSING) -> Any:
    """Return the field for a key of options.json with its sections, such as `lstm.dim`."""
    return field(metadata={"key": key, "rule": rule}, default=default)


@dataclass(frozen=True)
class CharCnnOptions:
    """The section `char_cnn` of options.json, which describes the character encoder."""

    filters: tuple[tuple[int, int], ...] = _option("char_cnn.filters", _FILTERS)  # width, number
    activation: str = _option("char_cnn.activation", _ACTIVATION)
    embedding_dim: int = _option("char_cnn.embedding.dim", _whole(1))
    n_highway: int = _option("char_cnn.n_highway", _whole(0), 0)
    # A word needs memory in proportion to this, and the weights don't limit it.
    max_characters_per_token: int = _option(
        "char_cnn.max_characters_per_token", _whole(3, 1000), 50
    )

    @property
    def n_filters(self) -> int:
        return sum(number for _, number in self.filters)


@dataclass(frozen=True)
class BiLmOptions:
    """
    The options of bilm-tf's options.json, typed and checked.

    An LSTM layer has `lstm_dim` cells and `projection_dim` outputs per direction, bounded by
    `cell_clip` and `proj_clip`. With `use_skip_connections`, each layer except the first adds its
    input to its output. `n_tokens_vocab` is the size of the softmax, and of the token embedding
    that replaces the character encoder if `char_cnn` is `None`; with `share_embedding_softmax` both
    have one weight. In training, `dropout` applies to every layer's input and to the top layer's
    output, and `sample_softmax` draws `n_negative_samples_batch` words per direction and batch.
    `training` has bilm-tf's other keys, which are only written back. `project_lstm` and
    `project_characters` say whether LSTM outputs and character encodings are projected; `None`
    means only if that changes their size.
    """

    lstm_dim: int = _option("lstm.dim", _whole(1))
    projection_dim: int = _option("lstm.projection_dim", _whole(1))
    n_layers: int = _option("lstm.n_layers", _whole(1), 1)
    cell_clip: float | None = _option("lstm.cell_clip", _CLIP, None)
    proj_clip: float | None = _option("lstm.proj_clip", _CLIP, None)
    use_skip_connections: bool = _option("lstm.use_skip_connections", _FLAG, False)
    char_cnn: CharCnnOptions | None = None
    bidirectional: bool = _option("bidirectional", _FLAG, True)
    dropout: float = _option("dropout", _DROPOUT, 0.0)
    n_tokens_vocab: int | None = _option("n_tokens_vocab", _whole(1), None)
    sample_softmax: bool = _option("sample_softmax", _FLAG, True)
    n_negative_samples_batch: int = _option("n_negative_samples_batch", _whole(1), _MANY_SAMPLES)
    share_embedding_softmax: bool = _option("share_embedding_softmax", _FLAG, False)
    training: dict[str, Any] = field(default_factory=dict)
    project_lstm: bool | None = None
    project_characters: bool | None = None

    @property
    def directions(self) -> list[str]:
        return ["forward", "backward"] if self.bidirectional else ["forward"]

    @property
    def max_characters_per_token(self) -> int | None:
        return None if self.char_cnn is None else self.char_cnn.max_characters_per_token

    @property
    def n_samples(self) -> int:
        """The negative samples for a direction and batch, 0 for the full softmax."""
        return self.n_negative_samples_batch if self.sample_softmax else 0

    @property
    def projects_lstm(self) -> bool:
        differs = self.lstm_dim != self.projection_dim
        return differs if self.project_lstm is None else self.project_lstm

    @property
    def projects_characters(self) -> bool:
        differs = self.char_cnn is not None and self.char_cnn.n_filters != self.projection_dim
        return differs if self.project_characters is None else self.project_characters

    @property
    def architecture(self) -> dict[str, Any]:
        """The options that determine a model's parameters and their use, by key of options.json."""
        values = flatten(self.to_dict())
        keys = [key for key in values if key == "bidirectional" or key.startswith(_SECTIONS)]
        projects = [self.projects_lstm, self.projects_characters]
        return {**{key: values[key] for key in sorted(keys)}, "projects": projects}

    @classmethod
    def from_file(cls, path: PathLike) -> "BiLmOptions":
        """Read an options.json. A `ValueError` names the file and the key that is wrong."""
        return cls.from_dict(read_json_object(path), source=str(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "options") -> "BiLmOptions":
        """
        Check the contents of an options.json, which errors call `source`. Keys that are missing or
        null have bilm-tf's defaults. Without `bidirectional`, options with `unroll_steps`, which
        bilm-tf's training writes, mean forward only; the published ones mean both directions.
        """
        error = functools.partial(_error, source)
        flat = {key: value for key, value in flatten(values).items() if value is not None}
        flat.setdefault("bidirectional", "unroll_steps" not in values)
        has_char_cnn = values.get("char_cnn") is not None
        if has_char_cnn:
            flat.setdefault("char_cnn.activation", "relu")
        for section in _SECTIONS:
            if section in flat:
                raise error(section, "must be a JSON object {...}")
        n_characters = flat.pop("char_cnn.n_characters", N_CHARACTERS)
        if n_characters not in (N_CHARACTERS - 1, N_CHARACTERS):
            raise error(
                "char_cnn.n_characters",
                f"must be {N_CHARACTERS - 1} (in training) or {N_CHARACTERS} (for prediction), but "
                f"is {reprlib.repr(n_characters)}; models with their own set of characters, such "
                "as cl-tohoku's Japanese ELMo, need the program that trained them",
            )
        own, char_cnn = _arguments(cls, flat, source), None
        if has_char_cnn:
            arguments = _arguments(CharCnnOptions, flat, source)
            filters = tuple(map(tuple, arguments.pop("filters")))
            char_cnn = CharCnnOptions(filters, **arguments)
            width, most = max(filters)[0], char_cnn.max_characters_per_token
            if width > most:
                raise error("char_cnn.filters", f"has width {width}, more than {most} characters")
        kinds = cls, CharCnnOptions
        known = {option.metadata.get("key") for kind in kinds for option in fields(kind)}
        training = {key: value for key, value in flat.items() if key not in known}
        for key in training:
            if key.startswith(_SECTIONS):
                raise error(key, "is not known")
        unknown = [escaped(key) for key in training if key not in _TRAINING_KEYS]
        if unknown:
            logger.warning("%s: keys that nothing here uses: %s", source, reprlib.repr(unknown))
        options = cls(**own, char_cnn=char_cnn, training=training)
        if options.projection_dim > options.lstm_dim:
            text = f'({options.projection_dim}) must not exceed "lstm.dim" ({options.lstm_dim})'
            raise error("lstm.projection_dim", text)
        if options.share_embedding_softmax and char_cnn is not None:
            raise error("share_embedding_softmax", "needs a token embedding: take char_cnn out")
        return options

    def for_words(self, n_words: int) -> "BiLmOptions":
        """
        Return the options with the full softmax if there are no more words than samples. Published
        options lack the number of samples, and bilm-tf's default may be too large.
        """
        return replace(self, sample_softmax=self.sample_softmax and self.n_samples < n_words)

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of an options.json for prediction, which all programs read."""
        values: dict[str, Any] = dict(self.training)
        parts: list[Any] = [self, self.char_cnn]
        for part in filter(None, parts):
            for option in fields(part):
                key, value = option.metadata.get("key"), getattr(part, option.name)
                if key is None or (value is None and not key.startswith("lstm.")):
                    continue
                section = values
                *sections, last = key.split(".")
                for name in sections:
                    section = section.setdefault(name, {})
                section[last] = value
        if self.char_cnn is not None:
            values["char_cnn"]["filters"] = [list(pair) for pair in self.char_cnn.filters]
            values["char_cnn"]["n_characters"] = N_CHARACTERS  # as bilm-tf's prediction needs
        return values

    def write(self, path: PathLike) -> None:
        """Write an options.json atomically."""
        write_text(path, json.dumps(self.to_dict(), indent=2) + "\n")


def _error(source: str, key: str, message: str) -> ValueError:
    return ValueError(f'{source}: "{escaped(key)}" {message}')


def _arguments(kind: Any, flat: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the arguments of a dataclass of options, checked."""
    arguments = {}
    for option in fields(kind):
        key: Any = option.metadata.get("key")
        if key in flat:
            text, is_right = option.metadata["rule"]
            if not is_right(flat[key]):
                raise _error(source, key, f"must be {text}, but is {reprlib.repr(flat[key])}")
            arguments[option.name] = flat[key]
        elif key is not None and option.default is MISSING:
            raise _error(source, key, "is missing; bilm-tf's options.json always has it")
    return arguments


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of an options.json by keys with their sections, such as `lstm.dim`."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name in _SECTIONS and isinstance(value, Mapping):
            flat.update(flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat


def set_options(
    values: dict[str, Any],
    arguments: Mapping[str, Any],
    n_words: int,
    source: str = "bidirectional_lm",
) -> None:
    """Change the keys of an options.json by the arguments of a `bidirectional_lm` that are set."""
    for key in ("dropout", "share_embedding_softmax", "bidirectional"):
        if arguments.get(key) is not None:
            values[key] = arguments[key]
    num_samples = arguments.get("num_samples")
    if num_samples == "auto":
        num_samples = _MANY_SAMPLES if n_words >= 2 * _MANY_SAMPLES else 0
    if num_samples is not None:
        if type(num_samples) is not int or num_samples < 0:
            raise ValueError(
                f'{source}: "num_samples" must be a whole number from 0 or "auto", but is '
                f"{reprlib.repr(num_samples)}"
            )
        values["sample_softmax"] = num_samples > 0
        if num_samples > 0:
            values["n_negative_samples_batch"] = num_samples
