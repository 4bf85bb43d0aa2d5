#!/usr/bin/env python3
"""Records what PyTorch computes for the zoo: fourteen architectures, exported by both exporters
(README.md, "The zoo").

    python tests/parity/record_zoo.py [--out FOLDER] [NAME ...]

With names, only those are recorded again. NAME.EXPORTER.json describes one run.
"""

import argparse
import copy
import dataclasses
import io
import json
import pathlib
import warnings
from typing import Callable

import numpy as np
import onnx
import onnxscript.optimizer
import torch

import cases
import models
import record
import rewrite
import zoo_models as zoo

STEPS = 10
BATCHES = 5
OPSET = 20
PROJECTIONS = 3


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    build: Callable
    data: Callable  # (generator, rows) -> ({input: array}, labels)
    batch: int
    lr: float
    exporters: tuple = ("torchscript", "dynamo")
    # How often a nearby seed is tried until PyTorch's own float32 gradients are stable.
    tries: int = 60
    seed: int = 100
    ignore_index = None


def image(channels, size, classes):
    make = cases.images(channels, size, classes)

    def data(rng, rows):
        x, labels = make(rng, rows)
        return {"image": x}, labels

    return data


def segmented(rng, rows, size=16, classes=4):
    labels = rng.integers(0, classes, (rows, size // 4, size // 4)).repeat(4, 1).repeat(4, 2)
    colours = rng.standard_normal((classes, 3))
    x = colours[labels].transpose(0, 3, 1, 2) + 0.5 * rng.standard_normal((rows, 3, size, size))
    return {"image": x.astype(np.float32)}, labels.astype(np.int64)


def volumes(rng, rows, classes=5):
    labels = rng.integers(0, classes, rows)
    prototypes = rng.standard_normal((classes, 2, 6, 8, 8))
    x = prototypes[labels] + 0.5 * rng.standard_normal((rows, 2, 6, 8, 8))
    return {"volume": x.astype(np.float32)}, labels.astype(np.int64)


def tokens(vocab, length):
    def data(rng, rows):
        x, labels = cases.next_tokens(rng, rows, vocab, length)
        return {"input_ids": x}, labels

    return data


def masked(rng, rows):
    walk = cases.walks(rng, rows, 37, 11)
    return {"input_ids": walk.astype(np.int64)}, np.roll(walk, 1, 1).astype(np.int64)


def translations(rng, rows, vocab=29, length=9):
    source = cases.walks(rng, rows, vocab, length)
    target = (source[:, ::-1] * 3) % vocab
    shifted = np.concatenate([np.zeros((rows, 1), target.dtype), target[:, :-1]], 1)
    return ({"source": source.astype(np.int64), "target": shifted.astype(np.int64)},
            target.astype(np.int64))


def sentences(rng, rows, vocab=31, length=11, classes=5):
    labels = rng.integers(0, classes, rows)
    x = (labels[:, None] * 6 + rng.integers(0, 9, (rows, length))) % vocab
    return {"input_ids": x.astype(np.int64)}, labels.astype(np.int64)


CASES = [
    Case("resnet18", zoo.resnet18, image(3, 32, 9), 6, 0.05),
    Case("resnet50", zoo.resnet50, image(3, 32, 9), 6, 0.05),
    Case("mobilenet_v3", zoo.mobilenet_v3, image(3, 32, 9), 6, 0.2),
    Case("efficientnet_b0", zoo.efficientnet_b0, image(3, 32, 9), 6, 0.02),
    Case("convnext_tiny", zoo.convnext_tiny, image(3, 32, 9), 6, 0.02),
    Case("vit_b_16", zoo.vit_b_16, image(3, 32, 9), 6, 0.02),
    Case("unet", zoo.UNet, segmented, 3, 0.05),
    Case("cnn3d", zoo.Cnn3d, volumes, 4, 0.05),
    Case("bert", models.Bert, masked, 4, 0.05),
    Case("gpt2", models.Gpt, tokens(43, 13), 4, 0.05),
    Case("llama", zoo.Llama, tokens(43, 13), 4, 0.05),
    Case("encoder_decoder", zoo.EncoderDecoder, translations, 4, 0.05),
    Case("lstm_classifier", zoo.LstmClassifier, sentences, 5, 0.1),
    Case("gru_lm", zoo.GruLm, tokens(31, 9), 4, 0.5),
]


class FileHardsigmoid(torch.nn.Module):
    """HardSigmoid with the slope that the file holds: 1/6 rounded to float32."""

    def forward(self, x):
        return torch.clamp(x * float(np.float32(1 / 6)) + 0.5, 0, 1)


def with_constants_of_file(model):
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.Hardsigmoid):
                setattr(module, name, FileHardsigmoid())
    return model


def train(case, model, inputs, labels, training, dtype=torch.float64):
    """As record.train, with several inputs, momentum SGD and a mode."""
    model = with_constants_of_file(copy.deepcopy(model)).to(dtype).train(training)
    optimizer = torch.optim.SGD(model.parameters(), lr=case.lr, momentum=0.9)
    losses, gradients = [], {}
    for step in range(STEPS):
        first = (step % BATCHES) * case.batch
        rows = slice(first, first + case.batch)
        batch = [v[rows] if v.dtype == torch.int64 else v[rows].to(dtype) for v in inputs.values()]
        loss = record.loss_of(case, model(*batch), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gradients = {n: p.grad.double().numpy().copy() for n, p in model.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    final = {n: v.detach().double().numpy() for n, v in model.state_dict().items()
             if v.dtype.is_floating_point}
    return losses, gradients, final


def float32_gap(trained, single):
    """Largest normwise difference of a step-1 gradient."""
    total = np.sqrt(sum(float((g * g).sum()) for g in trained[1].values()))
    gap = 0.0
    for name, exact in trained[1].items():
        norm = np.linalg.norm(exact)
        gap = max(gap, float(np.linalg.norm(single[1][name] - exact) /
                             (norm if norm > 1e-13 * total else total)))
    return gap


def export(exporter, model, inputs, state):
    model = copy.deepcopy(model)
    example = tuple(inputs.values())
    names = {"input_names": list(inputs), "output_names": ["logits"], "opset_version": OPSET}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            program = torch.onnx.export(model.eval(), example, None, dynamo=True, verbose=False,
                                        optimize=False, **names)
            # The limits keep it from folding parameters, whose real sizes lie above its own limits.
            onnxscript.optimizer.optimize(program.model, input_size_limit=1, output_size_limit=1)
            result = program.model_proto
        else:
            stream = io.BytesIO()
            torch.onnx.export(model.train(), example, stream, dynamo=False,
                              do_constant_folding=False,
                              training=torch.onnx.TrainingMode.TRAINING, **names)
            result = onnx.load_from_string(stream.getvalue())
            rewrite.restore(result, state)
    rewrite.strip_metadata(result)
    onnx.checker.check_model(result, full_check=True)
    return result


def digest(tensor):
    full = record.digest(tensor)
    return {"norm": full["norm"], "projections": full["projections"][:PROJECTIONS]}


def record_case(case, folder):
    """One entry of the manifest per exporter."""
    for attempt in range(case.tries):
        seed = case.seed + attempt
        torch.manual_seed(seed)
        model = zoo.prepare(case.build(), seed)
        x, labels = case.data(np.random.default_rng(seed), BATCHES * case.batch)
        inputs = {n: torch.from_numpy(v) for n, v in x.items()}
        target = torch.from_numpy(labels)
        trained = {t: train(case, model, inputs, target, t) for t in (True, False)}
        gaps = {t: float32_gap(trained[t], train(case, model, inputs, target, t, torch.float32))
                for t in (True, False)}
        if max(gaps.values()) < 5e-6:
            break
    else:
        raise AssertionError((case.name, "float32 gradients are unstable", gaps))
    state = {n: v for n, v in model.state_dict().items() if v.dtype.is_floating_point}
    for name, value in x.items():
        np.save(folder / f"{case.name}.{name}.npy", value)
    np.save(folder / f"{case.name}.labels.npy", labels)
    entries = []
    for exporter in case.exporters:
        training = exporter == "torchscript"
        losses, gradients, final = trained[training]
        fall = 1 - np.mean(losses[-BATCHES:]) / np.mean(losses[:BATCHES])
        assert fall > 0.005, (case.name, exporter, losses)
        example = {n: v[:case.batch] for n, v in inputs.items()}
        onnx_model = export(exporter, model, example, state)
        mapping, rest = rewrite.map_parameters(onnx_model, state)
        name = f"{case.name}.{exporter}"
        (folder / f"{name}.onnx").write_bytes(onnx_model.SerializeToString(deterministic=True))
        total = float(np.sqrt(sum(float((g * g).sum()) for g in gradients.values())))
        parameters = {}
        for tensor, entry in mapping.items():
            source = entry["torch"]
            item = {"final": digest(record.in_layout(final[source], entry))}
            if source in gradients:
                gradient = record.in_layout(gradients[source], entry)
                item["gradient"] = digest(gradient)
                item["zero_gradient"] = bool(np.linalg.norm(gradient) < 1e-13 * total)
            parameters[tensor] = item
        entry = {
            "name": case.name, "exporter": exporter, "model": f"{name}.onnx", "opset": OPSET,
            "steps": STEPS, "training": training,
            "inputs": {n: f"{case.name}.{n}.npy" for n in x}, "labels": f"{case.name}.labels.npy",
            "logits": "logits",
            "optimizer": {"kind": "momentum", "lr": case.lr, "momentum": 0.9, "weight_decay": 0.0},
            "freeze": rest, "float32_gradient": gaps[training], "losses": losses,
            "grad_norm": total, "tensors": parameters}
        entries.append(entry)
        print(f"{name:28} seed {seed} nodes {len(onnx_model.graph.node):4} "
              f"bytes {onnx_model.ByteSize():7} fp32 {gaps[training]:.1e} fall {fall:.3f}",
              flush=True)
    return entries


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent / "zoo")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    folder = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for case in CASES:
        if arguments.names and case.name not in arguments.names:
            continue
        for entry in record_case(case, folder):
            path = folder / f"{case.name}.{entry['exporter']}.json"
            path.write_text(record.dump(entry))


if __name__ == "__main__":
    main()
