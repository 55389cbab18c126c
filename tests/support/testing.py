"""Random language models in the published layout, and accidents to processes and disks."""

import atexit
import json
import os
import re
import signal
import sys
import traceback
from pathlib import Path
from unittest.mock import patch

import h5py
import numpy as np
import pytest

try:
    from allennlp.commands import main
except ModuleNotFoundError:
    from allennlp_elmo_plugin.__main__ import main  # our commands alone

_CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "open", "shutil.rmtree")


def write_random_elmo(directory, *, seed=0, lstm_dim=16, recurrent_scale=0.4, **changes):
    """
    Write `options.json` and `weights.hdf5` of a random language model to a folder, new or not.
    `changes` are keys of the sections of its options.

    The recurrent weights are contractive: a rounding error shrinks from step to step, so two
    implementations can be compared to 1e-5 after any number of steps. The inputs' weights are large
    enough for the gates to use their whole range.
    """
    char_cnn = {"activation": "relu", "embedding": {"dim": 4}, "filters": ((1, 4), (2, 6), (3, 8))}
    char_cnn.update(max_characters_per_token=50, n_characters=262, n_highway=1)
    lstm = {"cell_clip": 3.0, "dim": lstm_dim, "n_layers": 2, "proj_clip": 3.0, "projection_dim": 8}
    for key, value in changes.items():
        (lstm if key in lstm else char_cnn)[key] = value
    lstm["use_skip_connections"] = True
    options = {"bidirectional": True, "char_cnn": char_cnn, "lstm": lstm}
    filters, projection_dim, char_dim = char_cnn["filters"], lstm["projection_dim"], 4
    Path(directory).mkdir(exist_ok=True)
    options_file, weight_file = Path(directory, "options.json"), Path(directory, "weights.hdf5")
    options_file.write_text(json.dumps(options), encoding="utf-8")
    rng = np.random.RandomState(seed)

    def normal(*shape, scale):
        return (rng.standard_normal(shape) * scale).astype("float32")

    n_filters = sum(n for _, n in filters)
    with h5py.File(weight_file, "w") as file:
        file["char_embed"] = normal(261, char_dim, scale=1.0)
        for i, (width, n) in enumerate(filters):
            scale = (width * char_dim) ** -0.5
            file[f"CNN/W_cnn_{i}"] = normal(1, width, char_dim, n, scale=scale)
            file[f"CNN/b_cnn_{i}"] = normal(n, scale=0.1)
        for i in range(char_cnn["n_highway"]):
            for gate, bias in (("carry", -2.0), ("transform", 0.0)):
                scale = n_filters**-0.5
                file[f"CNN_high_{i}/W_{gate}"] = normal(n_filters, n_filters, scale=scale)
                file[f"CNN_high_{i}/b_{gate}"] = bias + normal(n_filters, scale=0.1)
        file["CNN_proj/W_proj"] = normal(n_filters, projection_dim, scale=n_filters**-0.5)
        file["CNN_proj/b_proj"] = normal(projection_dim, scale=0.1)
        for direction in range(2):
            for layer in range(lstm["n_layers"]):
                group = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
                shape = projection_dim, 4 * lstm_dim
                of_input = normal(*shape, scale=2 * projection_dim**-0.5)
                # A normal matrix of this shape has a norm of about the sum of both roots.
                norm = projection_dim**0.5 + (4 * lstm_dim) ** 0.5
                of_state = normal(*shape, scale=recurrent_scale / norm)
                file[f"{group}/W_0"] = np.concatenate([of_input, of_state])
                file[f"{group}/B"] = normal(4 * lstm_dim, scale=0.1)
                file[f"{group}/W_P_0"] = normal(lstm_dim, projection_dim, scale=lstm_dim**-0.5)
    return str(options_file), str(weight_file)


def read_arrays(path):
    """All datasets of an HDF5 file by their full names."""
    names = []
    with h5py.File(path, "r") as file:
        file.visit(names.append)
        return {name: file[name][...] for name in names if isinstance(file[name], h5py.Dataset)}


def read_files(folder, *leave_out):
    """The bytes of all files in a folder, by their paths there, but for some."""
    paths = sorted(filter(Path.is_file, Path(folder).rglob("*")))
    files = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: path.read_bytes() for name, path in files.items() if name not in leave_out}


def refused(capsys, *arguments):
    """Run a command with a mistake, and return the line that it prints: `error: ` and why."""
    argv = ["allennlp", *map(str, arguments)]
    with patch.object(sys, "argv", argv), pytest.raises(SystemExit) as raised:
        main()
    assert raised.value.code == 2
    message = capsys.readouterr().err
    assert re.fullmatch("error: .+\n", message), message
    return message


def fork(function, kill_at=None, wait=True):
    """
    Call a function in a child process, and return how it ended: 0 if well, 256 after an exception,
    or the number of a signal; without `wait` the number of the process. The child is killed
    (SIGKILL) when it changes a name in the file system, or opens a file, after `kill_at` times.
    """
    if os.name == "nt":
        pytest.skip("Windows can't fork")
    child = os.fork()
    if child == 0:
        status = 1
        atexit._clear()  # what pytest does at its end
        try:
            if kill_at is not None:
                left = iter(range(kill_at))

                def kill(event, arguments):
                    if event in _CHANGES and next(left, None) is None:
                        os.kill(os.getpid(), signal.SIGKILL)

                sys.addaudithook(kill)
            function()
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:  # whatever happens, the child does not go on as pytest
            os._exit(status)
    return os.waitpid(child, 0)[1] if wait else child


def limit_file_size(n_bytes):
    """Let this process write no file longer than this: a disk that is full."""
    import resource  # not on Windows

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then write() fails
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
