"""Compares training steps with PyTorch: same model, data, threads; losses first, then time.

    run.py --bin BUILD/bin [--models resnet18 gpt2] [--rounds 5] [--out FOLDER]

Every round runs each side once, in turn; the figure is the median over all steps but the first
three of each run. Ratios above 1 mean that hyperrun is faster.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
WARM_UP = 3
STEPS = 8


def torch_run(model, threads, *flags):
    command = [sys.executable, str(HERE / "torch_step.py"), model, str(threads), str(STEPS), *flags]
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    if "--ddp" in flags:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
                   *command[1:]]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    return json.loads(out.strip().splitlines()[-1])


def hyper_run(args, folder, threads, ranks=1, extra=()):
    command = [str(args.bin / "hyperrun"), str(folder / "job.bundle"), "--steps", str(STEPS),
               "--set", f"run.dir={folder / 'run'}", *extra]
    if ranks > 1:
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), *command]
    subprocess.run(["rm", "-rf", str(folder / "run")], check=True)
    subprocess.run(command, check=True, capture_output=True,
                   env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").open()]
    rows = [row for row in rows if "loss" in row and "step_ms" in row]
    return {"losses": [row["loss"] for row in rows], "step_ms": [row["step_ms"] for row in rows]}


def median(runs):
    return statistics.median(t for run in runs for t in run["step_ms"][WARM_UP:])


def compare(args, model):
    folder = args.out / model
    if not (folder / "model.onnx").exists():
        subprocess.run([sys.executable, str(HERE / "export.py"), model, str(folder)], check=True)
    subprocess.run(["rm", "-rf", str(folder / "job.bundle")], check=True)
    subprocess.run([str(args.bin / "hyperc"), "compile", str(folder / "model.onnx"), "-s",
                    str(folder / "strategy.yaml"), "-o", str(folder / "job.bundle")], check=True)
    sides = {"eager": lambda: torch_run(model, 2)}
    if model == "resnet18":
        sides["eager channels-last"] = lambda: torch_run(model, 2, "--channels-last")
    if args.compile:
        sides["torch.compile"] = lambda: torch_run(model, 2, "--compile")
    sides["hyper"] = lambda: hyper_run(args, folder, 2)
    runs = {side: [] for side in sides}
    for _ in range(args.rounds):
        for side, run in sides.items():
            runs[side].append(run())
    reference, ours = runs["eager"][0]["losses"], runs["hyper"][0]["losses"]
    difference = max(abs(a - b) / abs(a) for a, b in zip(reference[:3], ours[:3]))
    print(f"{model}: first losses {reference[:3]} and {ours[:3]}, largest relative difference "
          f"{difference:.2e}")
    ours_ms = median(runs["hyper"])
    for side in sides:
        ms = median(runs[side])
        print(f"  {side:22} {ms:9.1f} ms   ratio {ms / ours_ms:5.2f}")
    return {side: median(r) for side, r in runs.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--models", nargs="+", default=["resnet18", "gpt2"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="also torch.compile")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/bench"))
    args = parser.parse_args()
    args.out = args.out.resolve()
    for model in args.models:
        compare(args, model)


main()
