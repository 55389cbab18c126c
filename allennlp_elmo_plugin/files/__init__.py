"""
Reading and writing files. `whole.py` writes files and folders whole or not at all;
`json_file.py`, `hdf5_file.py`, `tensors.py` and `model_archive.py` read the files of strangers
as data; `model_file_names.py` has the names of a model's files and finds them in a folder.
"""


class BadFile(ValueError):
    """A file that can't be used: the message names it and what is wrong with it."""
