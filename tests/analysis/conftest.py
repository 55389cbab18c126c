import pytest


@pytest.fixture
def drawn(monkeypatch):
    """The figures of matplotlib that are saved in a test."""
    figures = pytest.importorskip("matplotlib.figure")
    save, saved = figures.Figure.savefig, []

    def note(figure, *arguments, **settings):
        saved.append(figure)
        save(figure, *arguments, **settings)

    monkeypatch.setattr(figures.Figure, "savefig", note)
    return saved
