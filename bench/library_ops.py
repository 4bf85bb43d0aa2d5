"""Generated kernels beside oneDNN's own pooling, normalisation and softmax, at the same shapes.

    library_ops.py --bin BUILD/bin [--runs 7] [--out FOLDER]

Ours are the medians, instruction by instruction, of traced steps of the benchmark's ResNet-18 and
GPT-2; they hold what was fused with the layer (residual additions, Relu, biases, masks), which the
library would leave to other kernels. The library's are those of library_ops.cc. Two threads. Milliseconds of
one training step; a ratio above 1 means that ours are faster.
"""
import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
DEPS = pathlib.Path(os.environ.get("HYPER_DEPS", pathlib.Path.home() / ".cache" / "hyper"))
ONEDNN = DEPS / "onednn-2023.2.0"
# Layer -> (model, what the name of an instruction says when it computes the layer).
LAYERS = {
    "batch_norm": ("resnet18", ("/BatchNormali",)),
    "max_pool": ("resnet18", ("/maxpool/",)),
    "layer_norm": ("gpt2", ("LayerNormalization",)),
    "softmax": ("gpt2", ("/Softmax",)),
}
ROLES = ("forward", "input_grad", "weight_grad")


def library_times(out):
    program = out / "library_ops"
    subprocess.run(["c++", "-std=c++17", "-O2", "-fopenmp", str(HERE / "library_ops.cc"), "-isystem",
                    str(ONEDNN / "include"), str(ONEDNN / "lib" / "libdnnl.so.3"),
                    f"-Wl,-rpath,{ONEDNN / 'lib'}", "-o", str(program)], check=True)
    lines = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    return {name: float(ms) for name, ms in (line.split() for line in lines.splitlines())}


def traced_steps(args, model):
    """[(name, role, milliseconds)] of one training step, medians over the runs."""
    folder = args.out / model
    if not (folder / "model.onnx").exists():
        subprocess.run([sys.executable, str(HERE / "export.py"), model, str(folder)], check=True)
    bundle = folder / "job.bundle"
    subprocess.run([str(args.bin / "hyperc"), "compile", str(folder / "model.onnx"), "-s",
                    str(folder / "strategy.yaml"), "-o", str(bundle)], check=True,
                   stdout=subprocess.DEVNULL)
    times = collections.defaultdict(list)
    keys = []
    for _ in range(args.runs):
        trace = folder / "trace.json"
        subprocess.run([str(args.bin / "hyperrun"), str(bundle), "--steps", "4", "--trace",
                        str(trace), "--set", f"run.dir={folder / 'run'}", "--overwrite"], check=True,
                       stdout=subprocess.DEVNULL)
        events = [event for event in json.loads(trace.read_text())["traceEvents"]
                  if event.get("ph") == "X" and event["tid"] == 0]
        keys = [(event["name"], event["cat"]) for event in events]
        for i, event in enumerate(events):
            times[i].append(event["dur"] / 1000)
    return [(name, role, statistics.median(times[i])) for i, (name, role) in enumerate(keys)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--runs", type=int, default=7, help="traced runs of every model")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/bench"))
    args = parser.parse_args()
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "2"
    steps = {model: traced_steps(args, model) for model in ("resnet18", "gpt2")}
    library = library_times(args.out)
    for layer, (model, marks) in LAYERS.items():
        ours = sum(ms for name, role, ms in steps[model]
                   if role in ROLES and not name.startswith("onednn") and
                   any(mark in name for mark in marks))
        print(f"{layer:12} generated {ours:8.1f} ms   oneDNN {library[layer]:8.1f} ms   "
              f"ratio {library[layer] / ours:5.2f}")


main()
