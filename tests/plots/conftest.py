"""A browser that is offline, in which pages are opened from files."""

import shutil
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest

Open = Callable[[Path], Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, if there is one."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("needs Chromium: make browser")
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """
    Open a page. At the end of the test nothing must have been asked of the network, and no error be
    on the console.
    """
    problems: List[str] = []
    contexts = []

    def open_file(path: Path) -> Any:
        contexts.append(browser.new_context(color_scheme="light", reduced_motion="reduce"))
        page = contexts[-1].new_page()

        def route(route: Any) -> None:
            if route.request.url == path.as_uri():
                route.continue_()
            else:
                problems.append(f"request of {route.request.url}")
                route.abort()

        page.route("**/*", route)
        page.on("console", lambda message: problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (problems.append("dialog"), dialog.dismiss()))
        page.goto(path.as_uri())
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert problems == []
