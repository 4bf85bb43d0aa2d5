"""Prints the figures of a plan.json: fusion_figures.py NAME PLAN PAIRS FORMATS.

PAIRS is what claims_fusion_pairs lists for the same bundle, FORMATS is docs/formats.md, whose table
of reasons is the closed set.
"""
import collections
import copy
import json
import re
import sys

LIMIT = 1.2

name, path, pairs_path, formats_path = sys.argv[1:5]
with open(path) as file:
    plan = json.load(file)
with open(pairs_path) as file:
    neighbours = json.load(file)
with open(formats_path) as file:
    section = file.read().split("### `unfused`")[1].split("\n## ")[0]
documented = {reason for row in re.findall(r"^\| ([^|]*) \|", section, re.M)
              for reason in row.split(", ")} - {"reason"}
documented.discard("---")
# A comma within a reason splits nothing.
documented |= {"computed again in backward, not stored since forward"}


def unexplained(unfused):
    """Neighbours in unequal kernels that the list lacks, and texts without a documented reason."""
    lacking = unknown = 0
    for subprogram, found in neighbours.items():
        texts = [text.rpartition(": ") for text in unfused.get(subprogram, [])]
        stated = collections.Counter(pair for pair, _, _ in texts)
        lacking += (collections.Counter(found["unfused"]) - stated).total()
        unknown += sum(reason not in documented for _, _, reason in texts)
    return lacking + unknown + len(set(unfused) ^ set(neighbours))


def twins():
    """How many planted faults show: a line dropped, an unknown reason, an empty one."""
    seen = tried = 0
    for subprogram, found in neighbours.items():
        if not found["unfused"]:
            continue
        at = next(i for i, text in enumerate(plan["unfused"][subprogram])
                  if text.rpartition(": ")[0] == found["unfused"][0])
        pair = found["unfused"][0]
        for replacement in ([], [f"{pair}: because"], [f"{pair}: "]):
            faulty = copy.deepcopy(plan["unfused"])
            faulty[subprogram][at:at + 1] = replacement
            tried += 1
            seen += unexplained(faulty) > 0
    return seen, tried


pairs = [text for texts in plan["unfused"].values() for text in texts]
kernels = [k for k in plan["kernels"] if k["kind"] == "generated"]
groups = plan["fused_groups"]
calls = sum(k["calls"] for k in kernels)
in_groups = sum(len(g["kernels"]) for g in groups)


def ratio(group):
    """From the two counts, not from the ratio that the plan states."""
    moved, bound = group["bytes_moved"], group["lower_bound_bytes"]
    return moved / bound if bound else float("inf") if moved else 1.0


above = [g for g in groups if ratio(g) > LIMIT]
moved = sum(g["bytes_moved"] for g in groups)
bound = sum(g["lower_bound_bytes"] for g in groups)
# Every call counts: no traffic is left out of the groups.
by_calls = {}
for kernel in kernels:
    by_calls[kernel["kernel"]] = by_calls.get(kernel["kernel"], 0) + kernel["calls"]
for group in groups:
    for kernel in group["kernels"]:
        by_calls[kernel] -= 1
by_kernels = sum(k["calls"] * k["bytes_moved"] for k in kernels)
figures = {
    "unfused_pairs": len(pairs),
    "neighbouring_pairs": sum(found["pairs"] for found in neighbours.values()),
    "neighbouring_pairs_in_two_kernels": sum(len(f["unfused"]) for f in neighbours.values()),
    "unfused_without_reason": unexplained(plan["unfused"]),
    "generated_kernels": len(kernels),
    "generated_calls": calls,
    "calls_without_group": sum(abs(count) for count in by_calls.values()) +
                           abs(by_kernels - moved) + abs(calls - in_groups),
    "groups": len(groups),
    "groups_of_two_kernels_or_more": sum(len(g["kernels"]) > 1 for g in groups),
    "groups_above_1.2": len(above),
}
figures["faults_seen"], figures["faults_planted"] = twins()
for key, value in figures.items():
    print(f"measured {name}_{key} {value}")
print(f"measured {name}_moved_to_bound {moved / bound:.4f}")
print(f"measured {name}_worst_group {max(map(ratio, groups)):.4f}")
reasons = {}
for text in pairs:
    reason = text.rpartition(": ")[2]
    reasons[reason] = reasons.get(reason, 0) + 1
for reason, count in sorted(reasons.items()):
    print(f"note {name}: {count} pairs unfused: {reason}")
worst = sorted(groups, key=lambda g: -ratio(g))[:3]
for group in above[:20] or worst:
    print(f"note {name}: {'above 1.2' if group in above else 'among the worst'}: "
          f"{ratio(group):.3f} x, {group['bytes_moved']} bytes, {len(group['kernels'])} kernels, "
          f"{group['subprogram']}, {(group['sources'] or ['no source'])[0][:60]}")
