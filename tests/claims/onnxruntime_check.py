"""The demo's model in ONNX Runtime, for tests/claims/main-job/01-demo.sh.

    onnxruntime_check.py write MODEL IMAGES            the test images, normalised, as raw float32
    onnxruntime_check.py compare MODEL IMAGES LOGITS   prints the accuracy and the largest difference
"""
import gzip
import pathlib
import sys

import numpy as np
import onnxruntime

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")


def read_idx(name, header):
    return np.frombuffer(gzip.open(DATA / name).read(), np.uint8, offset=header)


def write(images):
    pixels = read_idx("t10k-images-idx3-ubyte.gz", 16).astype(np.float64)
    normalised = (pixels / 255 - 0.2860) / 0.3530  # as recipes/fashion_mnist/train.yaml says
    normalised.astype(np.float32).tofile(images)


def compare(model, images, logits):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    rows = np.fromfile(images, np.float32).reshape(-1, 1, 28, 28)
    name = session.get_inputs()[0].name
    expected = np.concatenate([session.run(["logits"], {name: rows[i:i + 100]})[0]
                               for i in range(0, len(rows), 100)])
    actual = np.fromfile(logits, np.float32).reshape(expected.shape)
    labels = read_idx("t10k-labels-idx1-ubyte.gz", 8)
    for side, values in (("onnxruntime", expected), ("hyperrun", actual)):
        correct = np.mean(values.argmax(1) == labels)
        print(f"measured {side}_accuracy_percent {100 * correct:.2f}")
    print(f"measured logits_error {np.abs(expected - actual).max():.3g}")


{"write": lambda: write(sys.argv[3]),
 "compare": lambda: compare(*sys.argv[2:5])}[sys.argv[1]]()
