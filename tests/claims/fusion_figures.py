"""Prints the figures of a plan.json: fusion_figures.py NAME PLAN."""
import json
import sys

name, path = sys.argv[1:3]
with open(path) as file:
    plan = json.load(file)
pairs = [text for texts in plan["unfused"].values() for text in texts]
kernels = [k for k in plan["kernels"] if k["kind"] == "generated"]
above = [k for k in kernels if k["ratio"] is not None and k["ratio"] > 1.2]
moved = sum(k["calls"] * k["bytes_moved"] for k in above)
figures = {
    "unfused_pairs": len(pairs),
    "unfused_without_reason": sum(not text.partition(": ")[2].strip() for text in pairs),
    "generated_kernels": len(kernels),
    "generated_calls": sum(k["calls"] for k in kernels),
    "kernels_above_1.2": len(above),
}
for key, value in figures.items():
    print(f"measured {name}_{key} {value}")
generated = plan["generated"]
print(f"measured {name}_moved_to_bound {generated['ratio']:.4f}")
print(f"measured {name}_share_of_bytes_above_1.2 {moved / generated['bytes_moved']:.4g}")
worst = max((k["ratio"] or 0 for k in kernels), default=0)
print(f"measured {name}_worst_kernel {worst:.4g}")
reasons = {}
for text in pairs:
    reason = text.partition(": ")[2]
    reasons[reason] = reasons.get(reason, 0) + 1
for reason, count in sorted(reasons.items()):
    print(f"note {name}: {count} pairs unfused: {reason}")
for kernel in sorted(above, key=lambda k: -k["calls"] * k["bytes_moved"])[:3]:
    print(f"note {name}: above 1.2: {kernel['ratio']:.3g} x, {kernel['calls']} calls of "
          f"{kernel['bytes_moved']} bytes, {' '.join(kernel['operands'][:3])}, "
          f"{(kernel['sources'] or ['no source'])[0][:60]}")
