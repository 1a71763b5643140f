"""A replayed CSV: line numbers as ids, unusable lines named, and payments once the replay has come that far."""

import json
from pathlib import Path

import pytest

from tally.base.errors import TallyError
from tally.demo.events import PAYMENTS, RIDES
from tally.demo.tlc import TlcRides

HEAD = (
    "VendorID,tpep_pickup_datetime,tpep_dropoff_datetime,passenger_count,trip_distance,RatecodeID,"
    "store_and_fwd_flag,PULocationID,DOLocationID,payment_type,fare_amount,tip_amount,total_amount"
)
LINES = [
    HEAD,
    "2,2024-01-01 00:00:10,2024-01-01 00:05:00,1.0,1.72,1,N,186,79,1,17.7,2.5,22.7",
    "1,yesterday,2024-01-01 00:05:00,1,1.72,1,N,186,79,2,17.7,0,22.7",
    "1,2024-01-01 00:06:00,2024-01-01 00:20:00,,1.8,1,N,140,236,2,10,0,15.5",
    "1,2024-01-01 00:07:00,2024-01-01 00:20:00,1,far,1,N,140,236,2,10,0,15.5",
    "2,2024-01-01 00:30:00,2024-01-01 00:40:00,2,1.8,1,N,140,236,3,10,0,15.5",
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "trips.csv"
    path.write_text("\n".join(LINES) + "\n")
    return path


def test_rides_are_the_lines_and_bad_lines_are_counted_and_named(file: Path) -> None:
    source = TlcRides(path=file, rate=10, start_ms=1000)
    records = list(source)
    assert [(r.topic, r.id, r.due) for r in records] == [
        (RIDES, "2", 1000),
        (PAYMENTS, "7000000002", 1100),
        (RIDES, "4", 1100),
        (PAYMENTS, "7000000004", 1200),
        (RIDES, "6", 1200),
    ]
    ride = json.loads(records[0].value)
    assert ride == {
        "ride_id": 2,
        "cab_id": None,
        "vendor_id": 2,
        "pickup": 1704067210000,
        "dropoff": 1704067500000,
        "pickup_zone": 186,
        "dropoff_zone": 79,
        "passengers": 1,
        "distance": 1.72,
        "fare": 17.7,
        "tip": 2.5,
        "total_amount": 22.7,
    }
    assert json.loads(records[1].value)["payment_type"] == "card"
    assert source.unusable == 2 and source.next_id == 7
    assert source.shown == [
        f"{file}:3: tpep_pickup_datetime is 'yesterday', not a time like 2024-01-31 23:59:59",
        f"{file}:5: trip_distance is 'far', not a number",
    ]


def test_strict_stops_at_the_line(file: Path) -> None:
    with pytest.raises(TallyError, match=r"trips\.csv:3: tpep_pickup_datetime"):
        list(TlcRides(path=file, rate=10, start_ms=1000, strict=True))


def test_its_times_can_be_moved(file: Path) -> None:
    rides = [r for r in TlcRides(path=file, rate=10, start_ms=1000, move_to_ms=5_000_000) if r.topic == RIDES]
    assert [ride.event for ride in rides] == [5_000_000, 5_350_000, 6_790_000]


def test_count_counts_rides(file: Path) -> None:
    assert [r.id for r in TlcRides(path=file, rate=10, start_ms=1000, count=2, payments=False)] == ["2", "4"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a,b\n1,2\n", "no column VendorID"),
        (b"", "no column VendorID"),
        (b"\xff\xfe\x00", "no CSV in UTF-8"),
    ],
)
def test_a_file_that_is_no_such_csv_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(TallyError, match=says):
        list(TlcRides(path=tmp_path / "x.csv", rate=1, start_ms=0))
    with pytest.raises(TallyError, match="cannot read"):
        list(TlcRides(path=tmp_path / "none.csv", rate=1, start_ms=0))
