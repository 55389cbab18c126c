"""
The options of a language model, which are read from bilm-tf's options.json and written to it.
"""

import json
import logging
import os
import reprlib
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from allennlp_elmo_plugin.bilm.characters import N_CHARACTERS
from allennlp_elmo_plugin.files.json_file import read_json_object, shown
from allennlp_elmo_plugin.files.whole import whole_file

logger = logging.getLogger(__name__)

# The keys of bilm-tf's options that describe the training, not the model. They are kept and written
# back, and are ignored here, except `unroll_steps` (see `BiLmOptions.from_dict`).
_WHOLE_TRAINING_KEYS = ("batch_size", "n_epochs", "n_train_tokens", "unroll_steps")
_TRAINING_KEYS = ("all_clip_norm_val", "learning_rate", *_WHOLE_TRAINING_KEYS)
_MAX_INT = 2**31 - 1
# A word needs memory in proportion, and the weights don't limit it.
_MAX_CHARACTERS = 1000
_REQUIRED = object()


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_real and -1e300 < value < 1e300


class _Section:
    """
    A JSON object of the options, read key by key, with errors that name the file, the key and the
    fix.
    """

    def __init__(self, values: Any, name: str, source: str) -> None:
        self.name = name
        self.source = source
        if not isinstance(values, Mapping):
            raise ValueError(f"{source}: {name or 'the options'} must be a JSON object {{...}}")
        # What has not been taken yet.
        self.rest = dict(values)
        self._known: List[str] = []

    def key(self, key: str) -> str:
        return f'"{self.name}.{shown(key)}"' if self.name else f'"{shown(key)}"'

    def error(self, key: str, message: str) -> ValueError:
        return ValueError(f"{self.source}: {self.key(key)} {message}")

    def take(self, key: str, default: Any = _REQUIRED) -> Any:
        self._known.append(key)
        value = self.rest.pop(key, default)
        if value is _REQUIRED:
            raise self.error(key, "is missing; bilm-tf's options.json always has it")
        return value

    def take_int(
        self, key: str, default: Any = _REQUIRED, minimum: int = 1, maximum: int = _MAX_INT
    ) -> Any:
        value = self.take(key, default)
        if value is default and default is not _REQUIRED:
            return value
        if not _is_number(value) or value != int(value):
            raise self.error(key, f"must be a whole number, but is {reprlib.repr(value)}")
        if value < minimum:
            raise self.error(key, f"must be at least {minimum}, but is {value!r}")
        if value > maximum:
            raise self.error(key, f"must be at most {maximum}, but is {value!r}")
        return int(value)

    def take_positive(self, key: str) -> Optional[float]:
        value = self.take(key, None)
        if value is None:
            return None
        if not _is_number(value) or not value > 0:
            raise self.error(key, f"must be a number above 0 or null, but is {reprlib.repr(value)}")
        return float(value)

    def take_bool(self, key: str, default: bool) -> bool:
        value = self.take(key, default)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, but is {reprlib.repr(value)}")
        return value

    def refuse_rest(self) -> None:
        for key in self.rest:
            known = sorted(self._known)
            raise self.error(key, f"is not known; the keys of this section are {known}")


@dataclass(frozen=True)
class CharCnnOptions:
    """
    The section `char_cnn` of options.json, which describes the character encoder.

    # Parameters

    filters : `Tuple[Tuple[int, int], ...]`
        The width and number of each convolution.
    activation : `str`
        `"relu"` or `"tanh"`.
    embedding_dim : `int`
        Size of a character's embedding.
    n_highway : `int`, optional (default = `0`)
        Number of highway layers.
    max_characters_per_token : `int`, optional (default = `50`)
        How many ids a word is cut or padded to, including its begin and end marks.
    """

    filters: Tuple[Tuple[int, int], ...]
    activation: str
    embedding_dim: int
    n_highway: int = 0
    max_characters_per_token: int = 50

    @property
    def n_filters(self) -> int:
        return sum(number for _, number in self.filters)

    @classmethod
    def from_section(cls, section: _Section) -> "CharCnnOptions":
        n_characters = section.take_int("n_characters", N_CHARACTERS)
        if n_characters not in (N_CHARACTERS - 1, N_CHARACTERS):
            raise section.error(
                "n_characters",
                f"must be {N_CHARACTERS - 1} (bilm-tf while training: 256 bytes and 5 special "
                f"characters) or {N_CHARACTERS} (for prediction: one more id, 0, for padding), but "
                f"is {n_characters}; this model knows both, so write {N_CHARACTERS}",
            )
        max_characters = section.take_int("max_characters_per_token", 50, 3, _MAX_CHARACTERS)
        filters = section.take("filters")
        if not isinstance(filters, (list, tuple)) or not filters:
            raise section.error("filters", "must be a list of [width, number] pairs")
        for pair in filters:
            whole = isinstance(pair, (list, tuple)) and all(type(n) is int for n in pair)
            if not whole or len(pair) != 2 or min(pair) < 1 or pair[1] > _MAX_INT:
                raise section.error(
                    "filters",
                    f"must be [width, number] pairs, with numbers of at most {_MAX_INT}, but has "
                    f"{reprlib.repr(pair)}",
                )
            if pair[0] > max_characters:
                raise section.error(
                    "filters", f"has width {pair[0]}, more than the {max_characters} characters"
                )
        activation = section.take("activation", "relu")
        if activation not in ("relu", "tanh"):
            raise section.error(
                "activation", f'must be "relu" or "tanh", but is {reprlib.repr(activation)}'
            )
        embedding = _Section(section.take("embedding"), section.name + ".embedding", section.source)
        options = cls(
            filters=tuple((width, number) for width, number in filters),
            activation=activation,
            embedding_dim=embedding.take_int("dim"),
            n_highway=section.take_int("n_highway", None, minimum=0) or 0,
            max_characters_per_token=max_characters,
        )
        section.refuse_rest()
        return options

    def to_dict(self) -> Dict[str, Any]:
        return {
            "activation": self.activation,
            "embedding": {"dim": self.embedding_dim},
            "filters": [list(pair) for pair in self.filters],
            "max_characters_per_token": self.max_characters_per_token,
            "n_characters": N_CHARACTERS,
            "n_highway": self.n_highway,
        }


@dataclass(frozen=True)
class BiLmOptions:
    """
    The options of bilm-tf's options.json, typed and checked: what a biLM is made of.

    ```python
    options = BiLmOptions.from_file("options.json")
    options.projection_dim, options.n_layers
    ```

    `n_characters` is no field. bilm-tf writes 261 while training (256 bytes and 5 special
    characters, ids 0-260) and requires 262 for prediction (every id plus 1, and 0 for the padding
    of the time axis). This model always has 262 rows, row 0 being zero; it reads either number, and
    writes 262.

    # Parameters

    lstm_dim : `int`
        Cells of an LSTM layer in one direction (`lstm.dim`).
    projection_dim : `int`
        Size of a token vector and of an LSTM output in one direction (`lstm.projection_dim`).
    n_layers : `int`, optional (default = `1`)
        LSTM layers of a direction.
    cell_clip, proj_clip : `float`, optional (default = `None`)
        Bounds of the cell state and of the projected output, if there is one; `None` for none.
    use_skip_connections : `bool`, optional (default = `False`)
        Whether each layer but the first adds its input to its output.
    char_cnn : `CharCnnOptions`, optional (default = `None`)
        The character encoder; `None` for a token embedding.
    bidirectional : `bool`, optional (default = `True`)
        Whether there is a backward direction.
    dropout : `float`, optional (default = `0.0`)
        In training, on every layer's input and on the top layer's output.
    n_tokens_vocab : `int`, optional (default = `None`)
        Words of the softmax, and of the token embedding where there is one.
    sample_softmax : `bool`, optional (default = `True`)
        Whether training samples its softmax.
    n_negative_samples_batch : `int`, optional (default = `8192`)
        Negative samples for a direction and batch.
    share_embedding_softmax : `bool`, optional (default = `False`)
        Whether the softmax's weight is the token embedding.
    training : `Dict[str, Any]`, optional
        bilm-tf's other keys (`unroll_steps`, `n_epochs`, ...), kept for writing.
    project_lstm, project_characters : `bool`, optional (default = `None`)
        Whether LSTM outputs and character encodings are projected; not in options.json. `None` is
        bilm-tf's rule: only if that changes their size. AllenNLP always projects.
    """

    lstm_dim: int
    projection_dim: int
    n_layers: int = 1
    cell_clip: Optional[float] = None
    proj_clip: Optional[float] = None
    use_skip_connections: bool = False
    char_cnn: Optional[CharCnnOptions] = None
    bidirectional: bool = True
    dropout: float = 0.0
    n_tokens_vocab: Optional[int] = None
    sample_softmax: bool = True
    n_negative_samples_batch: int = 8192
    share_embedding_softmax: bool = False
    training: Dict[str, Any] = field(default_factory=dict)
    project_lstm: Optional[bool] = None
    project_characters: Optional[bool] = None

    @property
    def directions(self) -> List[str]:
        return ["forward", "backward"] if self.bidirectional else ["forward"]

    @property
    def projects_lstm(self) -> bool:
        if self.project_lstm is None:
            return self.lstm_dim != self.projection_dim
        return self.project_lstm

    @property
    def projects_characters(self) -> bool:
        if self.project_characters is None:
            return self.char_cnn is not None and self.char_cnn.n_filters != self.projection_dim
        return self.project_characters

    @classmethod
    def from_file(cls, path: Union[str, "os.PathLike[str]"]) -> "BiLmOptions":
        """
        Read an options.json.

        # Raises

        `FileNotFoundError`, or `ValueError` that names the file and the key.
        """
        return cls.from_dict(read_json_object(path), source=str(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "options") -> "BiLmOptions":
        """
        Check the contents of an options.json. Missing keys have bilm-tf's defaults: no clip, no
        skip connections, no highway layers.

        The default of `bidirectional` is a guess. bilm-tf trains forward only without this key, but
        always predicts in both directions, and its published options lack the key. So options
        without it are forward only if they have `unroll_steps`, which only training needs.

        # Parameters

        values : `Mapping[str, Any]`
            The parsed JSON.
        source : `str`, optional (default = `"options"`)
            Its name in errors, such as the file's path.

        # Raises

        `ValueError` that names the source and the key.
        """
        top = _Section(values, "", source)
        lstm = _Section(top.take("lstm"), "lstm", source)
        char_cnn_values = top.take("char_cnn", None)
        char_cnn = None
        if char_cnn_values is not None:
            char_cnn = CharCnnOptions.from_section(_Section(char_cnn_values, "char_cnn", source))
        dropout = top.take("dropout", 0.0)
        if not _is_number(dropout):
            raise top.error("dropout", f"must be a number, but is {reprlib.repr(dropout)}")
        if not 0 <= dropout < 1:
            raise top.error("dropout", f"must be at least 0 and below 1, but is {dropout}")
        options = cls(
            lstm_dim=lstm.take_int("dim"),
            projection_dim=lstm.take_int("projection_dim"),
            n_layers=lstm.take_int("n_layers", 1),
            cell_clip=lstm.take_positive("cell_clip"),
            proj_clip=lstm.take_positive("proj_clip"),
            use_skip_connections=lstm.take_bool("use_skip_connections", False),
            char_cnn=char_cnn,
            bidirectional=top.take_bool("bidirectional", "unroll_steps" not in values),
            dropout=float(dropout),
            n_tokens_vocab=top.take_int("n_tokens_vocab", None),
            sample_softmax=top.take_bool("sample_softmax", True),
            n_negative_samples_batch=top.take_int("n_negative_samples_batch", 8192),
            share_embedding_softmax=top.take_bool("share_embedding_softmax", False),
            training=top.rest,
        )
        lstm.refuse_rest()
        for key in _TRAINING_KEYS:
            value = top.rest.get(key, 0)
            if value is not None and not _is_number(value):
                raise top.error(key, f"must be a number, but is {reprlib.repr(value)}")
            if key in _WHOLE_TRAINING_KEYS and value and (value != int(value) or value < 0):
                raise top.error(key, f"must be a whole number, at least 0, but is {value!r}")
        unknown = [shown(key) for key in top.rest if key not in _TRAINING_KEYS]
        if unknown:
            logger.warning("%s: keys that nothing here uses: %s", source, reprlib.repr(unknown))
        if options.projection_dim > options.lstm_dim:
            raise lstm.error(
                "projection_dim",
                f"({options.projection_dim}) must not exceed {lstm.key('dim')} "
                f"({options.lstm_dim}): the projection makes the output smaller",
            )
        if options.share_embedding_softmax and char_cnn is not None:
            raise top.error(
                "share_embedding_softmax", "needs a token embedding: take char_cnn out or unset it"
            )
        return options

    def to_dict(self) -> Dict[str, Any]:
        """
        Return the contents of an options.json for prediction (`n_characters` 262), which bilm-tf,
        AllenNLP and `from_dict` read.
        """
        char_cnn, n_words = self.char_cnn, self.n_tokens_vocab
        return {
            "bidirectional": self.bidirectional,
            **({} if char_cnn is None else {"char_cnn": char_cnn.to_dict()}),
            "dropout": self.dropout,
            "lstm": {
                "cell_clip": self.cell_clip,
                "dim": self.lstm_dim,
                "n_layers": self.n_layers,
                "proj_clip": self.proj_clip,
                "projection_dim": self.projection_dim,
                "use_skip_connections": self.use_skip_connections,
            },
            **({} if n_words is None else {"n_tokens_vocab": n_words}),
            "sample_softmax": self.sample_softmax,
            "n_negative_samples_batch": self.n_negative_samples_batch,
            "share_embedding_softmax": self.share_embedding_softmax,
            **self.training,
        }

    def write(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """
        Write an options.json, whole or not at all.
        """
        with whole_file(path) as staged, open(staged, "w", encoding="utf-8") as options_file:
            json.dump(self.to_dict(), options_file, indent=2)
            options_file.write("\n")
