#!/usr/bin/env python3
"""Reads Avro files with fastavro, which shares no code with blobfeed, and prints them as JSON.

  read_avro.py [--summary | --jsonl] FILE_OR_DIR...

A directory stands for all *.avro below it, sorted by path. One line a file:

  {"file": ..., "schema": the header's text, "codec": ..., "metadata": {...}, "count": n,
   "records": [...]}

--summary leaves the records out; --jsonl prints one line a record instead, with "_file" in it
(a record that is no object comes as {"_file": ..., "value": ...}).

What JSON has no word for is a string: bytes as "0x00ff", decimals in their digits, dates and times
as in ISO 8601, NaN and the infinities by name. Exits 1 when a file cannot be read.
"""

import argparse
import datetime
import decimal
import json
import math
import os
import sys
import uuid
from pathlib import Path

import fastavro

# Held by the header for its own use; what is left is the writer's.
_RESERVED = ("avro.schema", "avro.codec")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--summary", action="store_true")
    how.add_argument("--jsonl", action="store_true")
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE_OR_DIR")
    arguments = parser.parse_args()
    failed = False
    for path in files(arguments.paths):
        try:
            show(path, arguments.summary, arguments.jsonl)
        except BrokenPipeError:
            # Whoever reads this has read enough. The pipe is given away, or the exit would complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        # Whatever a broken file makes the reader raise; the other files are still read.
        except Exception as error:  # noqa: BLE001
            print(f"{path}: {type(error).__name__}: {error}", file=sys.stderr)
            failed = True
    sys.exit(1 if failed else 0)


def files(paths):
    for path in paths:
        if path.is_dir():
            yield from sorted(path.rglob("*.avro"))
        else:
            yield path


def show(path, summary, jsonl):
    with open(path, "rb") as file:
        reader = fastavro.reader(file)
        if jsonl:
            for record in reader:
                named = record if isinstance(record, dict) else {"value": record}
                print(dumps({"_file": str(path), **named}))
            return
        line = {
            "file": str(path),
            "schema": reader.metadata["avro.schema"],
            "codec": reader.metadata.get("avro.codec", "null"),
            "metadata": {k: v for k, v in reader.metadata.items() if k not in _RESERVED},
        }
        if summary:
            line["count"] = sum(1 for _ in reader)
        else:
            line["records"] = list(reader)
            line["count"] = len(line["records"])
        print(dumps(line))


def dumps(value):
    try:
        return json.dumps(value, default=as_text, allow_nan=False)
    except ValueError:
        # A number that JSON does not have: rare, and worth the walk then only.
        return json.dumps(spell_out(value), default=as_text, allow_nan=False)


def as_text(value):
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    return repr(value)


def spell_out(value):
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: spell_out(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [spell_out(item) for item in value]
    return value


if __name__ == "__main__":
    main()
