"""
Makes Triton's interpreter twice as fast: it replaces the functions of its language at each call of
a kernel's function, and lists all types of numbers at each operation.
"""

import contextlib

from triton.runtime import interpreter

_patch_lang, _get_np_dtype = interpreter._patch_lang, interpreter._get_np_dtype
_patched, _dtypes = set(), {}


def _patch_once(function):
    if id(function.__globals__) not in _patched:
        _patched.add(id(function.__globals__))
        _patch_lang(function)
    scope = contextlib.ExitStack()
    scope.restore = scope.close
    return scope


def _find_once(kind):
    if str(kind) not in _dtypes:
        _dtypes[str(kind)] = _get_np_dtype(kind)
    return _dtypes[str(kind)]


def make_faster():
    interpreter._patch_lang, interpreter._get_np_dtype = _patch_once, _find_once
