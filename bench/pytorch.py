"""The built-in learner against the same network in PyTorch, turn about on the same
cores, float32 both.

    apt-get install python3-torch libopenblas0-pthread   # Debian 12: PyTorch 1.13
    python3 bench/pytorch.py [--rounds 3] [--seconds 4] [--python /usr/bin/python3]

Training is one optimiser step of imitation over 64 rows of 40 to 60 tokens, of which
the last 14 are targets; sampling is completions of 24 tokens to prompts of 30, 64 and
128 at once, with key-value cache. The network is the default one of learner/native
with a vocabulary of 384; learner/native/parity_test.go checks that both compute the
same. PyTorch runs with one thread and with one for each core, and the better figure counts. Each
round runs both, so what else the machine does falls on both. The table has the median of the rounds and, in brackets, the least and the most.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GO = {
    "BenchmarkTrain/imitation/portable=false": "training",
    "BenchmarkSample/inflight=64": "sampling, 64 at once",
    "BenchmarkSample/inflight=128": "sampling, 128 at once",
}
TORCH = {"train": "training", "sample, 64 in flight": "sampling, 64 at once", "sample, 128 in flight": "sampling, 128 at once"}
UNITS = ("tokens/s", "tokens/cpu-s")


def run(command, what):
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError as e:
        sys.exit(f"{what}: {e}")
    if done.returncode != 0:
        sys.exit(f"{what} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def builtin(binary, seconds):
    found = {}
    # Patterns of one depth each: benchmarks above the depth of a pattern are not measured.
    for pattern in ("^BenchmarkTrain$/^imitation$/^portable=false$", "^BenchmarkSample$/^inflight=(64|128)$"):
        out = run([binary, "-test.run", "^$", "-test.benchtime", f"{seconds}s", "-test.bench", pattern], "the built-in learner")
        for line in out.splitlines():
            name = re.sub(r"-\d+$", "", line.split()[0]) if line.strip() else ""
            if name in GO:
                found[GO[name]] = tuple(value(line, unit) for unit in UNITS)
    return found


def value(line, unit):
    return float(re.search(rf"([\d.e+]+) {re.escape(unit)}(?![\w-])", line).group(1))


def pytorch(python, seconds):
    """The better of one thread and one for each core: on a busy machine that differs."""
    found, version = {}, ""
    for threads in sorted({1, os.cpu_count()}):
        out = run([python, "learner/native/testdata/pytorch/bench.py", "--seconds", str(seconds), "--threads", str(threads)],
                  f"PyTorch in {python}")
        version = " ".join(out.split()[:2])
        for line in out.splitlines():
            name, _, rest = line.partition(": ")
            if name in TORCH:
                now = tuple(value(rest, unit) for unit in UNITS)
                found[TORCH[name]] = tuple(map(max, now, found.get(TORCH[name], now)))
    return found, version


def cell(values):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle / 1000:.1f} k ({low / 1000:.1f} to {high / 1000:.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--python", default="/usr/bin/python3", help="the one that has torch")
    args = parser.parse_args()
    if args.rounds < 1 or args.seconds <= 0:
        parser.error("--rounds must be 1 or more, --seconds above 0")
    with tempfile.TemporaryDirectory() as folder:
        binary = os.path.join(folder, "native.test")
        run(["go", "test", "-c", "-o", binary, "./learner/native"], "go test")
        ours, theirs, version = rounds(args, binary)
    report(args, ours, theirs, version)


def rounds(args, binary):
    ours, theirs, version = [], [], ""
    for i in range(args.rounds):
        print(f"round {i + 1} of {args.rounds}: built-in", file=sys.stderr, flush=True)
        ours.append(builtin(binary, args.seconds))
        print(f"round {i + 1} of {args.rounds}: PyTorch", file=sys.stderr, flush=True)
        found, version = pytorch(args.python, args.seconds)
        theirs.append(found)
    return ours, theirs, version


def report(args, ours, theirs, version):
    print(f"{version}, {os.cpu_count()} cores, {args.rounds} rounds of {args.seconds:g} s each\n")
    for k, unit in enumerate(UNITS):
        print(f"| {unit} | built-in | PyTorch | built-in / PyTorch |\n|---|---|---|---|")
        for what in dict.fromkeys(GO.values()):
            a, b = [r[what][k] for r in ours], [r[what][k] for r in theirs]
            print(f"| {what} | {cell(a)} | {cell(b)} | {statistics.median(a) / statistics.median(b):.1f} |")
        print()


if __name__ == "__main__":
    main()
