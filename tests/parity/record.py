#!/usr/bin/env python3
"""Records what PyTorch computes for the parity suite (see README.md for the formats).

Run it in the environment that `scripts/setup.sh --oracle` makes:  python tests/parity/record.py
It rewrites every file under tests/parity/data/. Training is done in double on one thread, from
the exact float32 values in the ONNX files.
"""

import argparse
import copy
import io
import json
import math
import pathlib

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import cases
import models
import rewrite

PROJECTIONS = 8
OPTIMIZERS = ("momentum", "adamw")
SHUFFLED = ("resnet18", "gpt")


def signs(index, count):
    """Row `index` of the sign matrix: splitmix64 of (index << 40 | element), top bit set = -1."""
    with np.errstate(over="ignore"):
        z = (np.uint64(index) << np.uint64(40)) | np.arange(count, dtype=np.uint64)
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return 1.0 - 2.0 * (z >> np.uint64(63)).astype(np.float64)


def digest(tensor):
    """Norm, projections and first elements of a tensor, summed exactly."""
    flat = np.ascontiguousarray(tensor, dtype=np.float64).reshape(-1)
    return {
        "norm": math.sqrt(math.fsum(flat * flat)),
        "projections": [math.fsum(flat * signs(k, flat.size)) for k in range(PROJECTIONS)],
        "head": [float(v) for v in flat[:4]],
    }


def build(case):
    torch.manual_seed(case.seed)
    model = case.build()
    models.randomize(model, torch.Generator().manual_seed(case.seed))
    if case.equal_norms:
        with torch.no_grad():
            for layer in model.layers:
                layer.norm2.weight.copy_(layer.norm1.weight)
                layer.norm2.bias.copy_(layer.norm1.bias)
    return model


def export(case, model, example, folded=False):
    """The model as an ONNX file. `folded`: evaluation mode with constant folding (TorchScript)."""
    model, state = copy.deepcopy(model), model.state_dict()
    names = {"input_names": [case.input_name], "output_names": ["logits"],
             "opset_version": case.opset}
    if case.exporter == "dynamo":
        model.eval()
        # The exporter's own optimizer unties small tied weights: it folds the transposed copy.
        program = torch.onnx.export(
            model, (example,), None, dynamo=True, verbose=False, optimize=False,
            dynamic_shapes=({0: torch.export.Dim("batch")},) if case.symbolic_batch else None,
            **names)
        import onnxscript.optimizer
        onnxscript.optimizer.optimize(program.model, input_size_limit=200, output_size_limit=200)
        result = program.model_proto
    else:
        mode = torch.onnx.TrainingMode
        model.train(not folded)
        axes = {case.input_name: {0: "batch"}, "logits": {0: "batch"}}
        stream = io.BytesIO()
        torch.onnx.export(
            model, (example,), stream, dynamo=False, do_constant_folding=folded,
            training=mode.EVAL if folded else mode.TRAINING,
            dynamic_axes=axes if case.symbolic_batch else None, **names)
        result = onnx.load_from_string(stream.getvalue())
        rewrite.restore(result, state)  # tracing in training mode moved the running statistics
    rewrite.strip_metadata(result)
    onnx.checker.check_model(result, full_check=True)
    return result


def loss_of(case, logits, labels):
    ignore = case.ignore_index if case.ignore_index is not None else cases.IGNORE
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1),
                           ignore_index=ignore)


def optimizer_settings(case, kind):
    if kind == "momentum":
        return {"kind": "momentum", "lr": case.momentum_lr, "momentum": 0.9, "weight_decay": 0.0}
    return {"kind": "adamw", "lr": case.adamw_lr, "betas": [0.9, 0.999], "eps": 1e-8,
            "weight_decay": 0.01}


def make_optimizer(parameters, settings):
    options = {k: v for k, v in settings.items() if k != "kind"}
    if settings["kind"] == "momentum":
        return torch.optim.SGD(parameters, **options)
    options["betas"] = tuple(options["betas"])
    return torch.optim.AdamW(parameters, **options)


def population_statistics(model):
    """Running variances as ONNX defines them (population variance), kept beside PyTorch's own."""
    running = {}

    def hook(name):
        def update(module, inputs):
            variance = inputs[0].detach().var([0, 2, 3], unbiased=False)
            before = running.get(name, module.running_var.clone())
            running[name] = (1 - module.momentum) * before + module.momentum * variance
        return update

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.register_forward_pre_hook(hook(f"{name}.running_var"))
    return running


def train(case, model, x, labels, settings, dtype=torch.float64):
    """20 steps; losses before each update, first gradients, final values by PyTorch name."""
    model = copy.deepcopy(model).to(dtype).train()
    population = population_statistics(model)
    optimizer = make_optimizer(model.parameters(), settings)
    losses, gradients = [], {}
    for step in range(cases.STEPS):
        rows = slice((step % cases.BATCHES) * case.batch, (step % cases.BATCHES + 1) * case.batch)
        inputs = x[rows] if x.dtype == torch.int64 else x[rows].to(dtype)
        loss = loss_of(case, model(inputs), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gradients = {n: p.grad.double().numpy().copy() for n, p in model.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    final = {n: v.detach().double().numpy() for n, v in model.state_dict().items()
             if v.dtype.is_floating_point}
    population = {n: v.double().numpy() for n, v in population.items()}
    return losses, gradients, final, population


def relative(a, b):
    scale = np.linalg.norm(b)
    return float(np.linalg.norm(np.asarray(a) - np.asarray(b)) / scale) if scale else 0.0


def pytorch_against_itself(case, model, x, labels, settings, trained):
    """Relative differences between PyTorch's double run and its float32 runs (contiguous and
    channels-last; largest), and between two double runs of different memory format and threads."""
    losses, gradients, final, _ = trained
    other = copy.deepcopy(model).to(memory_format=torch.channels_last)
    gaps, gradient_gaps = [], []
    flat = np.concatenate([g.reshape(-1) for g in gradients.values()])
    for candidate in (model, other):
        single = train(case, candidate, x, labels, settings, torch.float32)
        gaps.append(np.abs(np.array(single[0]) / np.array(losses) - 1))
        gradient_gaps.append(
            relative(np.concatenate([single[1][n].reshape(-1) for n in gradients]), flat))
        gradient_gaps.append(max(relative(single[1][n], g) for n, g in gradients.items()
                                 if np.linalg.norm(g) > 1e-13 * np.linalg.norm(flat)))
    torch.set_num_threads(2)
    again = train(case, other, x, labels, settings)
    torch.set_num_threads(1)
    return {
        "float32_first_losses": float(max(g[:3].max() for g in gaps)),
        "float32_losses": float(max(g.max() for g in gaps)),
        "float32_gradient": max(gradient_gaps[0::2]),
        "float32_gradient_by_tensor": max(gradient_gaps[1::2]),
        "float64_losses": relative(again[0], losses),
        "float64_parameters": max(relative(again[2][n], final[n]) for n in final),
    }


class Erf(OpRun):
    """ONNX's reference Erf rounds to float32."""

    def _run(self, x):
        return (np.vectorize(math.erf, otypes=[np.float64])(x),)


class Gelu(OpRun):
    """ONNX's reference Gelu rounds to float32, too."""

    def _run(self, x, approximate=None):
        assert approximate in (None, "none")
        return (0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2))),)


def check_graph(case, model, onnx_model, x, labels):
    """The file, computed in double by ONNX's reference evaluator, gives PyTorch's first loss."""
    rows = slice(0, case.batch)
    inputs = x[rows].numpy()
    inputs = inputs if inputs.dtype == np.int64 else inputs.astype(np.float64)
    runner = ReferenceEvaluator(rewrite.to_double(onnx_model), new_ops=[Erf, Gelu])
    logits = runner.run(None, {onnx_model.graph.input[0].name: inputs})[0]
    in_file = loss_of(case, torch.from_numpy(logits).double(), labels[rows]).item()
    reference = copy.deepcopy(model).double()
    reference.train(case.exporter == "torchscript")
    wanted = loss_of(case, reference(torch.from_numpy(inputs)), labels[rows]).item()
    difference = abs(in_file / wanted - 1)
    assert difference < 1e-12, (case.name, in_file, wanted)


def in_layout(value, entry):
    return value.T if entry["transpose"] else value


def expected(name, settings, mapping, trained):
    """The JSON record of one run under the tensor names and layouts of one file."""
    losses, gradients, final, population = trained
    total = math.sqrt(math.fsum(float((g * g).sum()) for g in gradients.values()))
    record = {"case": name, "optimizer": settings["kind"], "losses": losses, "grad_norm": total,
              "parameters": {}, "running_statistics": {}}
    for tensor, entry in mapping.items():
        source = entry["torch"]
        value = in_layout(final[source], entry)
        item = {"shape": list(value.shape)}
        if source not in gradients:
            item["final"] = digest(value)
            if source in population:
                item["final_population"] = digest(population[source])
            record["running_statistics"][tensor] = item
            continue
        gradient = in_layout(gradients[source], entry)
        item["zero_gradient"] = bool(np.linalg.norm(gradient) < 1e-13 * total)
        item["gradient"] = digest(gradient)
        item["final"] = digest(value)
        record["parameters"][tensor] = item
    return record


def dump(record):
    """JSON with one line per tensor."""
    lines = []
    for key, value in record.items():
        if isinstance(value, dict) and value and isinstance(next(iter(value.values())), dict):
            inner = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def describe(case, name, exporter, onnx_model, mapping, frozen, renamed=None):
    renamed = renamed or {}
    uses = {}
    for node in onnx_model.graph.node:
        for tensor in node.input:
            uses[tensor] = uses.get(tensor, 0) + 1
    result = {
        "name": name,
        "model": f"{name}.onnx",
        "exporter": exporter,
        "opset": case.opset,
        "dims": {"batch": case.batch} if case.symbolic_batch else {},
        "batch": case.batch,
        "batches": cases.BATCHES,
        "steps": cases.STEPS,
        "inputs": {renamed.get(case.input_name, case.input_name):
                   f"{case.name}.{case.input_name}.npy"},
        "labels": f"{case.name}.labels.npy",
        "logits": renamed.get("logits", "logits"),
        "ignore_index": case.ignore_index,
        "batch_norm": any(n.op_type == "BatchNormalization" for n in onnx_model.graph.node),
        "tied": sorted(t for t, e in mapping.items() if uses.get(t, 0) > 1 and
                       not any("identity_of" in m and m["identity_of"] == t
                               for m in mapping.values())),
        "freeze": frozen,
        "runs": [{"optimizer": optimizer_settings(case, k), "expected": f"{name}.{k}.json"}
                 for k in OPTIMIZERS],
        "mapping": mapping,
    }
    return result


def record_case(case, folder, manifest):
    model = build(case)
    rows = cases.BATCHES * case.batch
    x, labels = case.data(np.random.default_rng(case.seed), rows)
    np.save(folder / f"{case.name}.{case.input_name}.npy", x)
    np.save(folder / f"{case.name}.labels.npy", labels)
    x, labels = torch.from_numpy(x), torch.from_numpy(labels)
    example = x[:case.batch]
    state = {n: v for n, v in model.state_dict().items() if v.dtype.is_floating_point}

    trained, notes = {}, {}
    for kind in OPTIMIZERS:
        settings = optimizer_settings(case, kind)
        trained[kind] = train(case, model, x, labels, settings)
        losses = trained[kind][0]
        fall = 1 - np.mean(losses[-5:]) / np.mean(losses[:5])
        assert fall >= 0.1, (case.name, kind, fall)
        notes[kind] = pytorch_against_itself(case, model, x, labels, settings, trained[kind])
        assert notes[kind]["float64_losses"] < 1e-10, notes
        assert notes[kind]["float64_parameters"] < 1e-10, notes
        assert notes[kind]["float32_first_losses"] < 1e-5, notes
        assert notes[kind]["float32_gradient_by_tensor"] < 1e-5, notes
        notes[kind]["fall"] = float(fall)

    def keep(name, exporter, onnx_model, renamed=None, based_on=None):
        """Writes one file and its expected numbers."""
        if based_on is None:
            mapping, frozen = rewrite.map_parameters(onnx_model, state)
            check_graph(case, model, onnx_model, x, labels)
        else:
            mapping = {renamed[t]: e for t, e in based_on[0].items()}
            frozen = [renamed[t] for t in based_on[1]]
        (folder / f"{name}.onnx").write_bytes(onnx_model.SerializeToString(deterministic=True))
        entry = describe(case, name, exporter, onnx_model, mapping, frozen, renamed)
        entry["pytorch_against_itself"] = notes
        manifest["cases"].append(entry)
        for kind in OPTIMIZERS:
            record = expected(name, optimizer_settings(case, kind), mapping, trained[kind])
            (folder / f"{name}.{kind}.json").write_text(dump(record))
        return mapping, frozen

    onnx_model = export(case, model, example)
    based_on = keep(case.name, case.exporter, onnx_model)
    if case.name in SHUFFLED:
        moved = [t for t, e in based_on[0].items() if e["torch"].endswith("weight")]
        variant, renamed = rewrite.scramble(onnx_model, moved, case.seed)
        keep(f"{case.name}_shuffled", case.exporter, variant, renamed, based_on)
    if case.equal_norms:
        keep(f"{case.name}_folded", "torchscript, evaluation mode, constants folded",
             export(case, model, example, folded=True))
    for kind, note in notes.items():
        print(f"{case.name:10} {kind:9} " + ", ".join(f"{k} {v:.2g}" for k, v in note.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent / "data")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    manifest = {"version": 1, "torch": torch.__version__.split("+")[0], "dtype": "float64",
                "cases": []}
    for case in cases.CASES:
        record_case(case, folder, manifest)
    text = json.dumps({**manifest, "cases": None}, indent=1)
    entries = ",\n".join(dump(entry).rstrip() for entry in manifest["cases"])
    (folder / "manifest.json").write_text(text.replace("null", "[\n" + entries + "\n]") + "\n")


if __name__ == "__main__":
    main()
