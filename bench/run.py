"""Compares training steps with PyTorch: same model, data, threads; losses first, then time.

    run.py --bin BUILD/bin [--models resnet18 gpt2] [--rounds 10] [--out FOLDER]

Every round runs each side once, in turn: 8 steps, of which the last 5 count. The figure is the
median over the counted steps of all rounds (50 with 10 rounds). Ratios above 1 mean that hyperrun is
faster. One process: both sides use the same cores. Two ranks: rank r of both sides is bound to the
r-th core that this process may use, with one thread. The first two losses are compared, those
of 2 ranks with DDP's (mean over its ranks).
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
# The first loss and the one behind the first update. Further on, BatchNorm over few images magnifies
# the rounding of either side: the third loss is printed only. For two ranks that of DDP is printed
# beside DDP's own with another memory format.
COMPARED = 2
PRINTED = 3
RANK_CORES = (sorted(os.sched_getaffinity(0)) * 2)[:2]


def torch_run(model, threads, *flags):
    command = [sys.executable, str(HERE / "torch_step.py"), model, str(threads), str(STEPS), *flags]
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    if "--ddp" in flags:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
                   *command[1:], "--cores=" + ",".join(map(str, RANK_CORES))]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    return json.loads(out.strip().splitlines()[-1])


def hyper_run(args, folder, threads, ranks=1, bundle="job.bundle"):
    command = [str(args.bin / "hyperrun"), str(folder / bundle), "--steps", str(STEPS),
               "--set", f"run.dir={folder / 'run'}"]
    if ranks > 1:
        # mpirun's own binding would leave the choice of cores to it.
        bound = ["bash", "-c", f'cores=({" ".join(map(str, RANK_CORES))}); exec taskset -c '
                 '"${cores[OMPI_COMM_WORLD_LOCAL_RANK]}" "$@"', "rank"]
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n",
                   str(ranks), *bound, *command]
    subprocess.run(["rm", "-rf", str(folder / "run")], check=True)
    subprocess.run(command, check=True, capture_output=True,
                   env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").open()]
    rows = [row for row in rows if "loss" in row and "step_ms" in row]
    return {"losses": [row["loss"] for row in rows], "step_ms": [row["step_ms"] for row in rows]}


def compile_bundle(args, folder, strategy, bundle):
    subprocess.run(["rm", "-rf", str(folder / bundle)], check=True)
    subprocess.run([str(args.bin / "hyperc"), "compile", str(folder / "model.onnx"), "-s",
                    str(folder / strategy), "-o", str(folder / bundle)], check=True)


def step_flops(args, folder):
    """Floating-point operations of the library calls of one step: what the peak is compared with."""
    out = subprocess.run([str(args.bin / "hyperc"), "show", str(folder / "job.bundle"), "--kernels",
                          "--format", "json"], check=True, capture_output=True, text=True).stdout
    return sum(kernel["flops"] * kernel["calls"] / len(kernel["subprograms"])
               for kernel in json.loads(out)["kernels"]
               if kernel["kind"] == "library" and "step_first" in kernel["subprograms"])


def matmul_peak(threads):
    """Best rate of a large square product, operations per second: the faster of PyTorch's own BLAS,
    which is slow on some processors, and of oneDNN called through PyTorch."""
    code = ("import time, torch; torch.set_num_threads(%d); a = torch.randn(2048, 2048); best = 1e9\n"
            "b = a.to_mkldnn()\n"
            "for product in (lambda: a @ a, lambda: torch.nn.functional.linear(b, b)):\n"
            " for _ in range(20):\n"
            "  t = time.perf_counter(); product(); best = min(best, time.perf_counter() - t)\n"
            "print(2 * 2048**3 / best)" % threads)
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                                text=True, env=dict(os.environ, OMP_NUM_THREADS=str(threads))).stdout)


def median(runs):
    return statistics.median(t for run in runs for t in run["step_ms"][WARM_UP:])


def compare(args, model):
    folder = args.out / model
    if not (folder / "model.onnx").exists():
        subprocess.run([sys.executable, str(HERE / "export.py"), model, str(folder)], check=True)
    compile_bundle(args, folder, "strategy.yaml", "job.bundle")
    sides = {"eager": lambda: torch_run(model, 2)}
    if model == "resnet18":
        sides["eager channels-last"] = lambda: torch_run(model, 2, "--channels-last")
    if args.compile:
        sides["torch.compile"] = lambda: torch_run(model, 2, "--compile")
    sides["hyper"] = lambda: hyper_run(args, folder, 2)
    ours = report(model, sides, "eager", "hyper", args.rounds)
    peak = matmul_peak(2)
    print(f"  {step_flops(args, folder) / (ours / 1e3) / peak:.0%} of the matmul peak "
          f"({peak / 1e9:.0f} GFLOP/s)")


def compare_ddp(args, model):
    """2 ranks x 1 thread, half of the batch each, against DDP over Gloo."""
    folder = args.out / model
    text = (folder / "strategy.yaml").read_text()
    batch = int(text.split("batch: ")[1].split("}")[0])
    (folder / "half.yaml").write_text(text.replace(f"batch: {batch}", f"batch: {batch // 2}"))
    compile_bundle(args, folder, "half.yaml", "half.bundle")
    report(f"{model} on 2 ranks", {
        "DDP (Gloo)": lambda: torch_run(model, 1, "--ddp"),
        "hyper": lambda: hyper_run(args, folder, 1, ranks=2, bundle="half.bundle"),
    }, "DDP (Gloo)", "hyper", args.rounds)
    if model == "resnet18":
        plain = torch_run(model, 1, "--ddp")["losses"][:PRINTED]
        other = torch_run(model, 1, "--ddp", "--channels-last")["losses"][:PRINTED]
        print("  DDP's own losses with channels-last differ by "
              + ", ".join(f"{abs(a - b) / abs(a):.1e}" for a, b in zip(plain, other)))


def report(title, sides, reference, ours, rounds):
    """Runs all sides in turn and prints medians and ratios; returns our milliseconds."""
    runs = {side: [] for side in sides}
    for _ in range(rounds):
        for side, run in sides.items():
            runs[side].append(run())
    expected = runs[reference][0]["losses"][:PRINTED]
    actual = runs[ours][0]["losses"][:PRINTED]
    if len(expected) < PRINTED or len(actual) < PRINTED:
        sys.exit(f"{title}: a run reports fewer than {PRINTED} losses")
    differences = [abs(a - b) / abs(a) for a, b in zip(expected, actual)]
    print(f"{title}: losses {expected} and {actual}, relative difference of the last "
          f"{differences[-1]:.1e}; before, largest relative difference "
          f"{max(differences[:COMPARED]):.1e}")
    ours_ms = median(runs[ours])
    for side in sides:
        ms = median(runs[side])
        print(f"  {side:22} {ms:9.1f} ms   ratio {ms / ours_ms:5.2f}", flush=True)
    return ours_ms


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--models", nargs="+", default=["resnet18", "gpt2"])
    parser.add_argument("--rounds", type=int, default=10,
                        help="runs of every side, in turn")
    parser.add_argument("--compile", action="store_true", help="also torch.compile")
    parser.add_argument("--ddp", action="store_true", help="also 2 ranks against DDP over Gloo")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/bench"))
    args = parser.parse_args()
    args.out = args.out.resolve()
    for model in args.models:
        compare(args, model)
        if args.ddp:
            compare_ddp(args, model)


main()
