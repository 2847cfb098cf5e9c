"""Load and run mutated PTX for as long as you like; a text that kills the worker is kept.

    python scripts/fuzz_ptx.py [--seconds 600] [--seed 0] [--keep fuzz-findings]

The mutants are those of tests/emulator/fuzzing.py. A worker process takes one after the other; when it dies, stops
answering for half a minute, or meets an exception that no text may cause, its text is written to the folder and a new
worker goes on. Exits with 1 where anything was found.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import random
import sys
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "emulator"))
from fuzzing import attempt, mutate, seeds, vocabulary

PATIENCE = 30  # seconds for one mutant


def mutant(number: int, texts: list[str], words: list[str]) -> tuple[str, dict[str, object]]:
    """The text and options of mutant `number`: always the same."""
    chooser = random.Random(number)
    options = {"seed": chooser.randrange(4), "order": chooser.choice(["eager", "lazy", "seeded"])}
    return mutate(chooser.choice(texts), chooser, words), options


def work(pipe: Connection, number: int) -> None:
    """Say each number before it is tried and what came of it after."""
    words, texts = vocabulary(), seeds()
    while True:
        text, options = mutant(number, texts, words)
        pipe.send((number, None))
        try:
            outcome = attempt(text, budget=5000, **options)
        except BaseException:
            outcome = "!" + traceback.format_exc()
        pipe.send((number, outcome))
        number += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="folder for texts that were found")
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    end, number, found, shown = time.monotonic() + options.seconds, options.seed, 0, 0.0
    while time.monotonic() < end:
        ours, theirs = multiprocessing.Pipe()
        worker = multiprocessing.Process(target=work, args=(theirs, number), daemon=True)
        worker.start()
        theirs.close()
        finding = ""
        while time.monotonic() < end and not finding:
            try:
                if not ours.poll(PATIENCE):
                    finding = f"no answer within {PATIENCE} s"
                    break
                number, outcome = ours.recv()
            except (EOFError, ConnectionResetError):
                worker.join()
                finding = f"the worker died with status {worker.exitcode}"
                break
            if outcome is None:
                continue
            counts[outcome if outcome[0] != "!" else "finding"] += 1
            if outcome[0] == "!":
                finding = outcome[1:]
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                print(f"{counts.total():8,} mutants, {max(end - shown, 0):5.0f} s left, {found} findings", flush=True)
        worker.kill()
        worker.join()
        if finding:
            found += 1
            options.keep.mkdir(exist_ok=True)
            text, settings = mutant(number, seeds(), vocabulary())
            (options.keep / f"{number}.ptx").write_text(f"// {settings}\n{text}", encoding="utf-8")
            print(f"mutant {number}: {finding}\n  kept in {options.keep / f'{number}.ptx'}", flush=True)
            number += 1
    print("\n".join(f"{count:8,} {name}" for name, count in counts.most_common()))
    print(f"{counts.total():,} mutants, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
