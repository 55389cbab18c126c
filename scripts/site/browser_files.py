"""
A hook of MkDocs. It adds what docs/browser.md loads: `tiny` as an ONNX file, and ONNX Runtime's
WebAssembly from npm, which is kept in .cache. Without npm or onnx, the page says what is missing.
"""

import functools
import logging
import subprocess
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.config.defaults import MkDocsConfig

RUNTIME = "onnxruntime-web@1.30.0"
NAMES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")

ROOT = Path(__file__).resolve().parents[2]
_log = logging.getLogger("mkdocs.hooks.browser_files")


def on_post_build(config: MkDocsConfig) -> None:
    folder = Path(config.site_dir, "browser")
    try:
        (folder / "tiny.onnx").write_bytes(_model())
        for name, content in _runtime().items():
            (folder / name).write_bytes(content)
    except (ImportError, OSError, ValueError, subprocess.CalledProcessError) as error:
        _log.info(f"browser.html will not work, it needs onnx and npm: {error}")


@functools.cache
def _model() -> bytes:
    from allennlp_elmo_plugin.commands.elmo_export import export

    with TemporaryDirectory() as folder:
        export("tiny", path := Path(folder, "tiny.onnx"), precision="float16")
        return path.read_bytes()


@functools.cache
def _runtime() -> dict[str, bytes]:
    cache = ROOT / ".cache"
    archive = cache / f"{RUNTIME.replace('@', '-')}.tgz"
    if not archive.exists():
        cache.mkdir(exist_ok=True)
        _log.info(f"Downloading {RUNTIME} with npm (33 MB)")
        with TemporaryDirectory(dir=cache) as folder:
            command = ["npm", "pack", "--silent", RUNTIME]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            Path(folder, archive.name).rename(archive)
    with tarfile.open(archive) as files:
        members = {name: files.extractfile(f"package/dist/{name}") for name in NAMES}
        return {name: member.read() for name, member in members.items() if member}
