"""The weights: two ONNX files, which both runtimes read.

Promises: what is returned is what was recorded when the weights were exported. Does not need onnxruntime or onnx.
"""

import hashlib
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "weights"

# A truncated download would otherwise draw noise without an error.
WEIGHTS_SHA256 = {
    "denoiser.onnx": "10894aeebcd6c1145303eeda7ba7daeb8ff6d63d36c3a8e3b8283059dd477e69",
    "decoder.onnx": "87c262004974fcac980653c2aa78cdf7296ccc3a8ca1f9750a9669e6388322c7",
}

# Field numbers of onnx.proto; the format promises never to change one.
_MODEL_GRAPH = 7
_GRAPH_INITIALIZER = 5
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_DATA = 1, 2, 8, 9
_DTYPES = {1: np.float32, 7: np.int64, 10: np.float16}


def read_weights():
    """Return the content of each file by its name. Raises RuntimeError when one is not what was recorded."""
    return {name: checked_weights(FOLDER / name, digest) for name, digest in WEIGHTS_SHA256.items()}


def checked_weights(path, digest):
    """Return the bytes of a weights file. Raises RuntimeError when they are not the ones recorded."""
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise RuntimeError(f"weights/{path.name} has sha256 {found}, not {digest}: fetch the file again")
    return content


def arrays(onnx_file):
    """Return the stored numbers of a network by the names they had in training: {name: array}."""
    (graph,) = (value for number, value in _fields(memoryview(onnx_file)) if number == _MODEL_GRAPH)
    return dict(_array(value) for number, value in _fields(graph) if number == _GRAPH_INITIALIZER)


def _array(tensor):
    fields = list(_fields(tensor))
    one = dict(fields)
    shape = [value for number, value in fields if number == _TENSOR_DIMS]
    return str(one[_TENSOR_NAME], "utf-8"), np.frombuffer(one[_TENSOR_DATA], _DTYPES[one[_TENSOR_TYPE]]).reshape(shape)


def _fields(message):
    """Yield (field number, value) of a protocol buffer: integers, and views of what has a length."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        size = {1: 8, 5: 4}.get(key & 7, 0)  # doubles and floats, which no field read here has
        if key & 7 == 0:
            value, at = _varint(message, at)
        else:
            if key & 7 == 2:
                size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
        yield key >> 3, value


def _varint(message, at):
    """Return an integer, seven bits a byte, lowest first, and where the next thing begins."""
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at
