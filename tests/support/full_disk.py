"""A disk that is full in the middle of a write to a journaled file."""

import os

from allennlp_elmo_plugin.embedding import journaled_file


class Disk:
    """Takes so many bytes, and then nothing more: what a killed process leaves behind."""

    def __init__(self, monkeypatch, n_bytes, error=None):
        self.left, self.error = n_bytes, error
        write_all, replace, ftruncate = journaled_file._write_all, os.replace, os.ftruncate

        def write(file, content):
            content = memoryview(content)[: self.left]
            full = len(memoryview(content)) == self.left
            self.left -= len(content)
            write_all(file, content)
            if full and self.error is not None:
                raise self.error

        def rename(source, target):
            if self.left:
                replace(source, target)

        def cut(descriptor, size):
            if self.left:
                ftruncate(descriptor, size)

        monkeypatch.setattr(journaled_file, "_write_all", write)
        monkeypatch.setattr(journaled_file.os, "replace", rename)
        monkeypatch.setattr(journaled_file.os, "ftruncate", cut)
