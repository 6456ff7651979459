#!/usr/bin/env python3
"""Checks that blobs hold the flights, all of them, each once, in order.

  compare_flights.py [--at-least-once] [--rows N] [--partitions N] BLOBDIR

Row i of the data set was sent to partition i % 6, so a partition's rows ascend. The blobs of a
partition are found by `partition-<n>` in their path, and put in order by their first row: names
end in random digits, which say nothing about the order within a second.

Prints the counts as JSON; exits 1 when there is a fault. Faults are rows that are missing, out of
order, in another partition than they were sent to, or in no row of the data set; and, unless
--at-least-once, rows that are there more than once. A row that comes again does not break the order.
"""

import argparse
import json
import re
import sys
from datetime import datetime
from pathlib import Path

import fastavro

import flights

_PARTITION = re.compile(r"partition-(\d+)")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--at-least-once", action="store_true")
    parser.add_argument("--rows", type=int, metavar="N", help="only the first N rows were sent")
    parser.add_argument("--partitions", type=int, default=6, metavar="N")
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()

    index = {row: number for number, row in enumerate(flights.rows(arguments.rows))}
    expected = min(arguments.rows or flights.COUNT, flights.COUNT)
    # Were two rows equal, a row's place could not be told from its content.
    if len(index) != expected:
        raise SystemExit(f"the data set has {len(index)} different rows, not {expected}")

    blobs, unknown = read(arguments.directory, index)
    counts = compare(blobs, expected, arguments.partitions)
    counts["unknown"] = unknown
    faults = ["missing", "out_of_order", "wrong_partition", "unknown"]
    if not arguments.at_least_once:
        faults.append("doubled")
    counts["ok"] = not any(counts[fault] for fault in faults)
    print(json.dumps(counts))
    sys.exit(0 if counts["ok"] else 1)


def read(directory, index):
    """Of each blob its partition and the numbers of its rows; and how many records are no rows."""
    blobs, unknown = [], 0
    for path in sorted(directory.rglob("*.avro")):
        partition = _PARTITION.search(path.relative_to(directory).as_posix())
        if not partition:
            raise SystemExit(f"{path}: no partition in its path")
        numbers = []
        with open(path, "rb") as file:
            for record in fastavro.reader(file):
                number = index.get(as_row(record))
                if number is None:
                    unknown += 1
                else:
                    numbers.append(number)
        blobs.append((int(partition.group(1)), numbers))
    return blobs, unknown


def as_row(record):
    """The record as flights.rows() gives it."""
    row = [record.get(name) for name in flights.NAMES]
    if isinstance(row[-1], datetime):
        row[-1] = round(row[-1].timestamp() * 1000)
    return tuple(row)


def compare(blobs, expected, partitions):
    seen = set()
    doubled = out_of_order = wrong_partition = 0
    per_partition = {}
    for partition, numbers in sorted(blobs, key=lambda blob: (blob[0], blob[1][:1], len(blob[1]))):
        totals = per_partition.setdefault(partition, {"blobs": 0, "records": 0, "highest": -1})
        totals["blobs"] += 1
        totals["records"] += len(numbers)
        for number in numbers:
            if number % partitions != partition:
                wrong_partition += 1
            if number in seen:
                doubled += 1
                continue
            seen.add(number)
            if number < totals["highest"]:
                out_of_order += 1
            totals["highest"] = max(number, totals["highest"])
    for totals in per_partition.values():
        del totals["highest"]
    return {
        "blobs": len(blobs),
        "records": sum(totals["records"] for totals in per_partition.values()),
        "expected": expected,
        "missing": expected - len(seen),
        "doubled": doubled,
        "out_of_order": out_of_order,
        "wrong_partition": wrong_partition,
        "partitions": per_partition,
    }


if __name__ == "__main__":
    main()
