"""Times PyTorch training steps.

    torch_step.py MODEL THREADS STEPS [--channels-last] [--compile] [--ddp --cores=A,B]

Prints one JSON line: losses and milliseconds of every step. With --ddp it is started by torchrun and
uses Gloo; rank r takes the r-th half of every batch and runs on the r-th of the cores. The losses
are then the mean over the ranks.
"""
import json
import os
import sys
import time

import torch

import models


def main():
    name, threads, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    flags = set(sys.argv[4:])
    cores = [flag.removeprefix("--cores=") for flag in flags if flag.startswith("--cores=")]
    if cores:
        # Before the first thread starts: all of them inherit it.
        os.sched_setaffinity(0, {int(cores[0].split(",")[int(os.environ["LOCAL_RANK"])])})
    torch.set_num_threads(threads)
    model, inputs, labels, batch, _ = models.make(name)
    inputs, labels = torch.from_numpy(inputs), torch.from_numpy(labels)
    if "--channels-last" in flags:
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    rank, world = 0, 1
    if "--ddp" in flags:
        torch.distributed.init_process_group("gloo")
        rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        model = torch.nn.parallel.DistributedDataParallel(model)
    if name == "resnet18":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95),
                                      weight_decay=0.1, fused=True)
    step_model = torch.compile(model) if "--compile" in flags else model
    losses, times = [], []
    for step in range(steps):
        begin = time.perf_counter()
        first = (step % models.BATCHES) * batch
        part = batch // world
        low = first + rank * part
        loss = models.loss_of(step_model, inputs[low:low + part], labels[low:low + part])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        times.append((time.perf_counter() - begin) * 1e3)
        if world > 1:
            total = torch.tensor([value], dtype=torch.float64)
            torch.distributed.all_reduce(total)
            value = total.item() / world
        losses.append(value)
    if rank == 0:
        print(json.dumps({"losses": losses, "step_ms": times,
                          "threads": int(os.environ.get("OMP_NUM_THREADS", threads))}))


main()
