"""
One thread a process, and AllenNLP as it is with the plugin loaded. Where AllenNLP isn't installed,
the tests that import it are skipped.
"""

import os

# Read by OpenMP when torch is first imported; subprocesses inherit it. More threads than cores make
# AllenNLP's trainer crawl, and a process that has had several cannot be forked.
os.environ["OMP_NUM_THREADS"] = "1"

import collections
import functools
import hashlib
import logging
import re
import shutil
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import allennlp_elmo_plugin  # noqa: F401
from allennlp_elmo_plugin import exits

# A shell starts background jobs with SIGINT ignored. Tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in each run; all examples of a test share its `tmp_path`.
CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("default", derandomize=True, deadline=None, suppress_health_check=CHECKS)
settings.register_profile(
    "nightly", settings.get_profile("default"), derandomize=False, max_examples=500, print_blob=True
)
settings.load_profile("default")

REPOSITORY_ROOT = Path(__file__).resolve().parent.parent

if os.name == "nt":
    os.mkfifo = lambda path: pytest.skip("Windows has no pipes in folders")

if find_spec("allennlp"):
    from allennlp import commands
    from allennlp.commands import train
    from allennlp.common import plugins

    # Each command of AllenNLP walks through all modules of all plugins, which takes seconds.
    import_plugins_once = functools.lru_cache(maxsize=None)(plugins.import_plugins)
    for module in (plugins, commands, train):
        module.import_plugins = import_plugins_once
else:
    collect_ignore = ["plugin", "plugin_test.py"]

    class _Module(pytest.Module):
        def collect(self):
            try:
                return super().collect()
            except self.CollectError as error:
                missing = re.search(r"No module named '(?!allennlp_elmo|tests)\w+.*", str(error))
                if missing is None:
                    raise
                pytest.skip(missing[0], allow_module_level=True)

    def pytest_pycollect_makemodule(module_path, parent):
        """Skip the tests that import AllenNLP or other packages that are not installed."""
        return _Module.from_parent(parent, path=module_path)


def pytest_report_header():
    return f"tests in turns: those of commit {_commit():.7}"


@functools.cache
def _commit():
    """The newest commit, or zeros where there is no repository."""
    command = ["git", "-C", REPOSITORY_ROOT, "rev-parse", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True) if shutil.which("git") else None
    return found.stdout.strip() if found and found.returncode == 0 else "0" * 40


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """
    Make all tests `in_turns(n)` nightly, except every n-th of a module, from one on that the commit
    chooses. At night, modules and their tests are in an order that it chooses. Start with the
    longest test, with which one worker would otherwise end alone.
    """
    places = collections.Counter()
    for item in items:
        for mark in item.iter_markers("in_turns"):
            name = item.path.name
            places[name] += 1
            if (places[name] + int(_commit(), 16) + len(name)) % mark.args[0]:
                item.add_marker("nightly")
    if config.getoption("--hypothesis-profile") == "nightly":
        items.sort(key=lambda item: [_digest(item.path.name), _digest(item.name)])
    items.sort(key=lambda item: not item.nodeid.startswith("tests/interpreter_test.py"))


def _digest(name):
    return hashlib.sha256(f"{_commit()} {name}".encode()).hexdigest()


@pytest.fixture(autouse=True)
def _keep_logging():
    """AllenNLP's commands silence loggers for good; each test starts as the first did."""
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def _survive_signals(monkeypatch):
    """Only in a child does a command end by a signal; here it exits with the status of that."""
    tests = os.getpid()

    end = exits.end_by_signal

    def end_by_signal(number):
        if os.getpid() != tests:
            end(number)
        raise SystemExit(128 + number)

    monkeypatch.setattr(exits, "end_by_signal", end_by_signal)


@pytest.fixture(scope="session")
def repository_root():
    """The folder with `.allennlp_plugins`, where commands are run from."""
    return REPOSITORY_ROOT


@pytest.fixture(scope="session")
def subprocess_environment():
    """An environment in which subprocesses find this package from any folder, installed or not."""
    python_path = [str(REPOSITORY_ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in python_path if path)}
