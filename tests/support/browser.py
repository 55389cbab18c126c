"""Headless Chromium over WebDriver, with a folder served to it."""

import functools
import http.server
import json
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


class Browser:
    """A session of WebDriver at `url`; `address` is that of the served folder."""

    def __init__(self, url, address, options):
        self._url, self.address = url, address
        capabilities = {"alwaysMatch": {"goog:chromeOptions": options}}
        session = self._call("POST", "session", {"capabilities": capabilities})["sessionId"]
        self._url = f"{url}/session/{session}"

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._url}/{path}".rstrip("/"), data, method=method)
        with urlopen(request, timeout=120) as response:
            return json.load(response)["value"]

    def open(self, page):
        self._call("POST", "url", {"url": f"{self.address}/{page}"})

    def run(self, script, *args):
        """Return what the body of a JavaScript function returns."""
        return self._call("POST", "execute/sync", {"script": script, "args": list(args)})

    def wait(self, script, *args, seconds=120):
        """Return the first true value of a script."""
        end = time.monotonic() + seconds
        while not (value := self.run(script, *args)):
            assert time.monotonic() < end, self.run("return document.body.innerText")
            time.sleep(0.1)
        return value

    def screenshot(self):
        return self._call("GET", "screenshot")  # PNG in base64

    def errors(self):
        """Return what the page logged as an error."""
        log = self._call("POST", "se/log", {"type": "browser"})
        return [entry["message"] for entry in log if entry["level"] == "SEVERE"]


@contextmanager
def browser(folder, **chrome_options):
    """Serve a folder and start a browser, or skip the test where there is none."""
    driver, chromium = (
        shutil.which("chromedriver"),
        next(filter(None, map(shutil.which, _BROWSERS)), 0),
    )
    if not driver or not chromium:
        pytest.skip("needs Chromium and chromedriver")
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
        try:
            for line in process.stdout:
                if "successfully on port" in line:
                    break
            port = int(line.rstrip().rstrip(".").split()[-1])
            options = {"binary": chromium, "args": list(_FLAGS), **chrome_options}
            session = Browser(f"http://127.0.0.1:{port}", address, options)
            try:
                yield session
            finally:
                session._call("DELETE", "")
        finally:
            process.kill()
            process.communicate()
            server.shutdown()
