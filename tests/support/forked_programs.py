"""
Blocks of shell code in a real bash, whose Python programs are forks of this process: they start at
once, since everything is imported already.
"""

import atexit
import json
import logging
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, List, NoReturn

# What stands for a program in the shell: it hands its arguments, folder, environment and open files
# to the fork server, waits, and ends as the fork does.
CLIENT = """#!{python} -ISE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"."], [0, 1, 2])
    argv = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
    server.sendall(json.dumps([argv, os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    status = server.recv(9)
sys.exit(int(status or 1))
"""
PROGRAMS = {
    "allennlp": "allennlp",
    "allennlp-elmo-plugin": "allennlp_elmo_plugin_activation",
    "pip": "pip",
    "tensorboard": "tensorboard.main",
}
"""Programs, beside `python`, and the modules that they run."""


class Shell:
    """
    A shell in a folder. What a block exports is in the environment of the next one.

    # Parameters

    folder : `Path`
        Where it starts. Gets `.venv/bin` with the programs.
    environment : `Dict[str, str]`
        Of the first block.
    change : `Callable[[List[str]], List[str]]`
        Called in each fork with the program's name and arguments, which it may change.
    """

    def __init__(
        self,
        folder: Path,
        environment: Dict[str, str],
        change: Callable[[List[str]], List[str]],
    ) -> None:
        self._folder = folder
        self._change = change
        self._sockets = tempfile.TemporaryDirectory()  # A socket's path must be short.
        self._exported = Path(self._sockets.name) / "environment"
        address = str(Path(self._sockets.name) / "server")
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        for name in ("python", *PROGRAMS):
            code = CLIENT.format(python=sys.executable, address=address)
            (programs / name).write_text(code, encoding="utf-8")
            (programs / name).chmod(0o755)
        self._environment = {**environment, "PATH": f"{programs}:{os.environ['PATH']}"}
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(address)
        self._server.listen()

    def __enter__(self) -> "Shell":
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.close()
        self._sockets.cleanup()

    def run(self, code: str) -> str:
        """Run code, which has to succeed line by line, and return all that it printed."""
        code = f"trap 'env -0 > {self._exported}' EXIT\nset -eo pipefail\n{code}"
        children = []
        with tempfile.TemporaryFile() as output:
            bash = subprocess.Popen(
                ["bash", "-c", code],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                while bash.poll() is None:
                    if select.select([self._server], [], [], 0.02)[0]:
                        children.append(self._fork())
            finally:
                bash.kill()
                for child in children:
                    os.waitpid(child, 0)
            output.seek(0)
            printed = output.read().decode("utf-8", "replace")
        assert bash.wait() == 0, f"{code}\nended with {bash.returncode}:\n{printed}"
        exported = self._exported.read_text(encoding="utf-8").rstrip("\0").split("\0")
        self._environment = dict(each.split("=", 1) for each in exported)
        return printed

    def _fork(self) -> int:
        """Return the process that runs the next program and tells its client how it ended."""
        connection, _ = self._server.accept()
        waiting = os.fork()
        if waiting:
            connection.close()
            return waiting
        try:
            atexit._clear()
            self._server.close()
            _, files, _, _ = socket.recv_fds(connection, 1, 3)
            argv, folder, environment = json.loads(connection.makefile("rb").read())
            program = os.fork()
            if program == 0:
                connection.close()
                for number, file in enumerate(files):
                    os.dup2(file, number)
                    os.close(file)
                run_program(self._change, argv, folder, environment)
            status = os.waitpid(program, 0)[1]
            killed = status & 127
            connection.sendall(str(128 + killed if killed else status >> 8).encode())
        finally:
            os._exit(0)


def run_program(
    change: Callable[[List[str]], List[str]],
    argv: List[str],
    folder: str,
    environment: Dict[str, str],
) -> NoReturn:
    """Be the program `argv[0]` from here on; files 0 to 2 are its own already."""
    status: Any = 1
    try:
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", buffering=1, closefd=False)
            for number, mode in enumerate(("r", "w", "w"))
        )
        logging.getLogger().handlers.clear()
        logging.getLogger().setLevel(logging.WARNING)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        argv = change(argv)
        try:
            if argv[0] in PROGRAMS:
                argv[:1] = ["python", "-m", PROGRAMS[argv[0]]]
            _run_python(argv[1:])
            status = 0
        except SystemExit as end:
            status = end.code
            if isinstance(status, str):
                print(status, file=sys.stderr)
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else int(status is not None))


def _run_python(arguments: List[str]) -> None:
    option, *others = arguments
    if option == "-c":
        sys.argv = ["-c", *others[1:]]
        sys.path.insert(0, "")
        exec(compile(others[0], "<string>", "exec"), {"__name__": "__main__"})
    elif option == "-m":
        sys.argv = others
        sys.path.insert(0, os.getcwd())
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, os.path.dirname(os.path.abspath(option)))
        runpy.run_path(option, run_name="__main__")
