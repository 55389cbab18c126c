import json
import logging
import os
import reprlib
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from allennlp_elmo_plugin.bilm.characters import N_CHARACTERS
from allennlp_elmo_plugin.files.json_file import read_json_object, shown
from allennlp_elmo_plugin.files.whole_file import whole_file

logger = logging.getLogger(__name__)

TRAINING_N_CHARACTERS = N_CHARACTERS - 1

# The keys of bilm-tf's options that say how to train, not what the model is. They are kept and
# written back, and are ignored here, except `unroll_steps` (see `BiLmOptions.from_dict`).
_TRAINING_KEYS = (
    "all_clip_norm_val",
    "batch_size",
    "learning_rate",
    "n_epochs",
    "n_train_tokens",
    "unroll_steps",
)
_WHOLE_TRAINING_KEYS = ("batch_size", "n_epochs", "n_train_tokens", "unroll_steps")
_MAX_INT = 2**31 - 1
# Words take memory in proportion, and nothing in the weights tells how much is right.
_MAX_CHARACTERS = 1000
_REQUIRED = object()


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_real and -1e300 < value < 1e300


class _Section:
    """
    One JSON object of the options, read key by key, with errors that name file, key and fix.
    """

    def __init__(self, values: Any, name: str, source: str) -> None:
        self.name = name
        self.source = source
        if not isinstance(values, Mapping):
            raise ValueError(f"{source}: {name or 'the options'} must be a JSON object {{...}}")
        self._values = dict(values)

    def key(self, key: str) -> str:
        return f'"{self.name}.{shown(key)}"' if self.name else f'"{shown(key)}"'

    def error(self, key: str, message: str) -> ValueError:
        return ValueError(f"{self.source}: {self.key(key)} {message}")

    def take(self, key: str, default: Any = _REQUIRED) -> Any:
        value = self._values.pop(key, default)
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

    def rest(self) -> Dict[str, Any]:
        return self._values

    def refuse_rest(self, known: Sequence[str]) -> None:
        for key in self._values:
            raise self.error(key, f"is not known; the keys of this section are {list(known)}")


def _check_training(top: _Section) -> None:
    """
    Check the keys that only say how to train.
    """
    for key, value in top.rest().items():
        if key in _TRAINING_KEYS and value is not None:
            if not _is_number(value):
                raise top.error(key, f"must be a number, but is {reprlib.repr(value)}")
            if key in _WHOLE_TRAINING_KEYS and (value != int(value) or value < 0):
                raise top.error(key, f"must be a whole number, at least 0, but is {value!r}")


@dataclass(frozen=True)
class CharCnnOptions:
    """
    The `char_cnn` section of options.json: how a word's characters become its vector.

    # Parameters

    filters : `Tuple[Tuple[int, int], ...]`
        (width, number) of each convolution.
    activation : `str`
        `"relu"` or `"tanh"`.
    embedding_dim : `int`
        Size of a character's embedding.
    n_highway : `int`, optional (default = `0`)
        Number of highway layers.
    max_characters_per_token : `int`, optional (default = `50`)
        Ids a word is cut or padded to, its begin and end marks included.
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
        if n_characters not in (TRAINING_N_CHARACTERS, N_CHARACTERS):
            raise section.error(
                "n_characters",
                f"must be {TRAINING_N_CHARACTERS} (bilm-tf while training: 256 bytes and 5 special "
                f"characters) or {N_CHARACTERS} (for prediction: one more id, 0, for padding), but "
                f"is {n_characters}; this model knows both, so write {N_CHARACTERS}",
            )
        max_characters = section.take_int("max_characters_per_token", 50, 3, _MAX_CHARACTERS)
        filters = section.take("filters")
        if not isinstance(filters, (list, tuple)) or not filters:
            raise section.error("filters", "must be a list of [width, number] pairs")
        for pair in filters:
            whole = isinstance(pair, (list, tuple)) and all(type(n) is int for n in pair)
            if not whole or len(pair) != 2 or min(pair) < 1:
                raise section.error(
                    "filters", f"must be [width, number] pairs, but has {reprlib.repr(pair)}"
                )
            if pair[1] > _MAX_INT:
                raise section.error(
                    "filters", f"must have numbers of at most {_MAX_INT}, but has {pair[1]}"
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
        section.refuse_rest(
            [
                "activation",
                "embedding",
                "filters",
                "max_characters_per_token",
                "n_characters",
                "n_highway",
            ]
        )
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
    bilm-tf's options.json as a typed, checked object: what a biLM is made of.

    ```python
    options = BiLmOptions.from_file("options.json")
    options.projection_dim, options.n_layers
    ```

    `n_characters` is not among the fields. bilm-tf writes 261 there while training (256 bytes and
    5 special characters, ids 0-260) and wants 262 for prediction (every id plus 1, and 0 for the
    padding of the time axis). This model always has the 262 rows, row 0 being zero; either number
    is read, and 262 is written.

    # Parameters

    lstm_dim : `int`
        Cells of an LSTM layer in one direction (`lstm.dim`).
    projection_dim : `int`
        Size of a token vector and of an LSTM output in one direction (`lstm.projection_dim`).
    n_layers : `int`, optional (default = `1`)
        LSTM layers of a direction.
    cell_clip, proj_clip : `float`, optional (default = `None`)
        Bounds of the cell state and of the projected output; `None` for none. The second exists
        only with a projection, that is if `lstm_dim != projection_dim`.
    use_skip_connections : `bool`, optional (default = `False`)
        Whether each layer but the first adds its input to its output.
    char_cnn : `CharCnnOptions`, optional (default = `None`)
        The character encoder; `None` for a token embedding.
    bidirectional : `bool`, optional (default = `True`)
        Whether there is a backward direction.
    dropout : `float`, optional (default = `0.0`)
        While training, on every layer's input and on the top layer's output.
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
        bilm-tf's rule: where that changes their size. AllenNLP's models always are.
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
        Reads an options.json.

        # Raises

        `FileNotFoundError`, or `ValueError` naming the file and the key that is wrong.
        """
        return cls.from_dict(read_json_object(path), source=str(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "options") -> "BiLmOptions":
        """
        Checks the contents of an options.json. Missing keys mean what bilm-tf takes them for: no
        clip, no skip connections, no highway layers.

        One key needs a guess. bilm-tf trains forward only when `bidirectional` is missing, but
        always predicts in both directions, and its published options lack the key. So without it,
        options with `unroll_steps`, which only training has, are forward only.

        # Parameters

        values : `Mapping[str, Any]`
            The parsed JSON.
        source : `str`, optional (default = `"options"`)
            What errors call it, such as the file's path.

        # Raises

        `ValueError` naming the source and the key that is wrong.
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
            training=top.rest(),
        )
        lstm.refuse_rest(
            ["cell_clip", "dim", "n_layers", "proj_clip", "projection_dim", "use_skip_connections"]
        )
        _check_training(top)
        unknown = [shown(key) for key in options.training if key not in _TRAINING_KEYS]
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
        # Returns

        `Dict[str, Any]`
            The contents of an options.json for prediction (`n_characters` 262), which bilm-tf,
            AllenNLP and `from_dict` read.
        """
        lstm: Dict[str, Any] = {
            "cell_clip": self.cell_clip,
            "dim": self.lstm_dim,
            "n_layers": self.n_layers,
            "proj_clip": self.proj_clip,
            "projection_dim": self.projection_dim,
            "use_skip_connections": self.use_skip_connections,
        }
        values: Dict[str, Any] = {"bidirectional": self.bidirectional}
        if self.char_cnn is not None:
            values["char_cnn"] = self.char_cnn.to_dict()
        values.update(dropout=self.dropout, lstm=lstm)
        if self.n_tokens_vocab is not None:
            values["n_tokens_vocab"] = self.n_tokens_vocab
        values.update(
            sample_softmax=self.sample_softmax,
            n_negative_samples_batch=self.n_negative_samples_batch,
            share_embedding_softmax=self.share_embedding_softmax,
        )
        values.update(self.training)
        return values

    def write(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """
        Writes options.json, whole or not at all.
        """
        with whole_file(path) as staged, open(staged, "w", encoding="utf-8") as options_file:
            json.dump(self.to_dict(), options_file, indent=2)
            options_file.write("\n")
