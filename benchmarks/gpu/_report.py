"""Results of a comparison with a GPU: the card, the driver, the date, the commit and the rows, as JSON."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _table import RESULTS, commit


@cache
def card() -> tuple[str, str]:
    """Name and driver version of GPU 0."""
    query = ["nvidia-smi", "-i", "0", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip().split(", ")
    return name, driver


def write(
    kind: str,
    path: Path | None,
    about: dict[str, Any],
    rows: list[dict[str, Any]],
    *,
    gpu: tuple[str, str] | None = None,
) -> None:
    """Write `benchmarks/results/<kind>-<card>.json`, or `path`; `gpu`: name and driver of a card elsewhere."""
    name, driver = gpu or card()
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    target = path or RESULTS / f"{kind}-{slug}.json"
    head = {
        **about,
        "card": name,
        "driver": driver,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    body = ",\n".join("  " + json.dumps(row) for row in rows)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("{\n" + "\n".join(lines) + '\n "rows": [\n' + body + "\n ]\n}\n", encoding="utf-8")
    print(f"wrote {target}")
