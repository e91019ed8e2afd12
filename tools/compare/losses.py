#!/usr/bin/env python3
"""How far the losses of two runs are apart: of one model in bf16 and in f32, say, on the same data and seed.

    python3 tools/compare/losses.py RUN/metrics.jsonl OTHER/metrics.jsonl [--every 10] [--limit 0.005]

Prints both losses and their distance over the first at every so manieth step, and the largest; fails when that passes the limit.
"""
import argparse, json, sys


def losses(path):
    with open(path) as lines:
        steps = [json.loads(line) for line in lines]
    return {step["step"]: step["loss"] for step in steps if "loss" in step}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("other")
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--limit", type=float, default=0.005)
    args = parser.parse_args()
    run, other = losses(args.run), losses(args.other)
    if run.keys() != other.keys():
        sys.exit(f"the runs have other steps: {len(run)} and {len(other)}")
    worst = 0.0
    for step in sorted(run):
        if step % args.every:
            continue
        distance = abs(run[step] - other[step]) / abs(run[step])
        worst = distance if not distance <= worst else worst  # a NaN stays
        print(f"step {step:6}  {run[step]:.5f}  {other[step]:.5f}  {100 * distance:.3f}%")
    print(f"largest {100 * worst:.3f}%, limit {100 * args.limit:g}%")
    sys.exit(0 if worst <= args.limit else 1)


if __name__ == "__main__":
    main()
