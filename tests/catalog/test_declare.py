"""A declaration that cannot hold is refused where it stands: file, line, field and cure."""

from __future__ import annotations

from pathlib import Path

import definitions
import pytest

from tally.base.errors import DefinitionError
from tally.catalog.load import load


def refused(folder: Path) -> DefinitionError:
    with pytest.raises(DefinitionError) as raised:
        load(folder).pipeline("demand")
    assert raised.value.cure
    return raised.value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return definitions.write(tmp_path)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("rides.collect()", "acts: collect()"),
        ("rides.toPandas()", "acts: toPandas()"),
        ("rides.cache()", "acts: cache()"),
        ("rides.show()", "acts: show()"),
        ("print(rides)", "acts: print()"),
        ("rides.write.save('x')", "writes: .save"),
        ("rides.createOrReplaceTempView('x')", "writes: .createOrReplaceTempView"),
        ("open('x')", "writes: open()"),
        ("rides.withColumn('t', F.current_timestamp())", "clock, chance or the environment: current_timestamp()"),
        ("rides.withColumn('t', F.rand())", "clock, chance or the environment: rand()"),
        ("rides.withColumn('t', F.lit(datetime.now()))", "clock, chance or the environment: now()"),
        ("rides.where(os.environ['X'])", "clock, chance or the environment: .environ"),
    ],
)
def test_a_function_that_is_no_pure_transform(tmp_path: Path, body: str, what: str) -> None:
    folder = definitions.write(tmp_path, body=body)
    error = refused(folder)
    assert what in error.message
    assert (error.pipeline, error.field) == ("demand", "function")
    assert error.where == definitions.line_of(folder, body)


def test_what_the_function_calls_in_its_file_is_looked_at_too(folder: Path) -> None:
    definitions.edit(folder, "F.col(column) * RATE", "F.col(column) * F.rand()")
    error = refused(folder)
    assert "rand()" in error.message and error.where == definitions.line_of(folder, "F.rand()")


def test_a_column_that_is_called_like_a_clock_is_fine(tmp_path: Path) -> None:
    body = 'rides.groupBy("window", "zone").agg(F.sum("time").alias("now"), F.count("*").alias("count"))'
    assert load(definitions.write(tmp_path, body=body)).pipelines


@pytest.mark.parametrize(
    ("old", "new", "field", "says"),
    [
        ('event_time="at"', 'event_time="when"', "event_time", "not in the schema"),
        ('event_time="at"', 'event_time="fare"', "event_time", "is DOUBLE"),
        ('lateness="1 minute"', 'lateness="soon"', "lateness", "no duration"),
        ('lateness="1 minute"', 'lateness="1 minute", unique="nr"', "unique", "not in the schema"),
        ('lateness="1 minute"', 'lateness="1 minute", partitions=0', "partitions", "0 partitions"),
        ("fare DOUBLE", "fare MONEY", "schema", "has type"),
        ('topic("rides"', 'topic("my rides"', "name", "no Kafka topic name"),
    ],
)
def test_a_topic_that_cannot_hold(folder: Path, old: str, new: str, field: str, says: str) -> None:
    definitions.edit(folder, old, new, file="topics.py")
    error = refused(folder)
    assert error.field == field and says in error.message
    assert error.where == definitions.line_of(folder, "rides = topic(", file="topics.py")


@pytest.mark.parametrize(
    ("old", "new", "field", "says"),
    [
        ('tumbling("1 minute")', 'hopping("1 minute", by="2 minutes")', "by", "gaps"),
        ('tumbling("1 minute")', 'tumbling("0 minutes")', "window", "longer than nothing"),
        ('tumbling("1 minute")', '"1 minute"', "window", "no window"),
        ("reads=rides", "reads=[rides, rides]", "reads", "twice"),
        ("reads=rides", "reads=[]", "reads", "takes one topic"),
        ("def demand(rides)", "def demand(rides, more)", "reads", "does not take 1"),
        ('key="zone"', 'key="batch"', "key", "uses itself"),
        ('key="zone"', 'key=["zone", "_x"]', "key", "uses itself"),
        ('key="zone"', 'key="zone", every="1 hour"', "every", "no cron"),
        ('key="zone"', 'key="zone", every="0 0 31 2 *"', "every", "no cron"),
        ('key="zone"', 'key="zone", every="* * * * * *"', "every", "no cron"),
        ('key="zone"', 'key="zone", every=""', "every", "no cron"),
        ('key="zone"', 'key="zone", every=5', "every", "no cron"),
        ('key="zone"', 'key="zone", deadline="soon"', "deadline", "no duration"),
        ('key="zone"', 'key="zone", deadline="0 minutes"', "deadline", "longer than nothing"),
        ('key="zone"', 'key="zone", team="the city"', "team", "no name of a team"),
        ('key="zone"', 'key="zone", tier=1', "tier", "no name of a tier"),
        ('key="zone"', 'key="zone", tier="' + "x" * 65 + '"', "tier", "no name of a tier"),
        ("def demand(", "def Demand(", "name", "cannot name"),
        ("def demand(", "def other(", "name", "called 'other'"),
    ],
)
def test_a_pipeline_that_cannot_hold(folder: Path, old: str, new: str, field: str, says: str) -> None:
    definitions.edit(folder, old, new)
    error = refused(folder)
    assert error.field == field and says in error.message
    assert error.where and str(folder / "pipelines" / "demand.py") in error.where


def test_a_join_has_to_say_its_reach(folder: Path) -> None:
    text = (folder / "topics.py").read_text()
    (folder / "topics.py").write_text(text + text.split("\n\n", 1)[1].replace("rides", "pays"))
    definitions.edit(folder, "from topics import rides", "from topics import pays, rides")
    definitions.edit(folder, "reads=rides", "reads=[rides, pays]")
    definitions.edit(folder, "def demand(rides)", "def demand(rides, pays)")
    assert refused(folder).field == "reach"
    definitions.edit(folder, 'key="zone"', 'key="zone", reach="5 minutes"')
    assert load(folder).pipelines["demand"].reach


def test_two_pipelines_in_a_file(folder: Path) -> None:
    text = (folder / "pipelines" / "demand.py").read_text()
    second = text[text.index("@pipeline") :].replace("def demand", "def supply")
    (folder / "pipelines" / "demand.py").write_text(text + "\n\n" + second)
    assert "holds 2 pipelines" in refused(folder).message


def test_no_pipeline_in_a_file(folder: Path) -> None:
    (folder / "pipelines" / "demand.py").write_text("X = 1\n")
    assert "holds 0 pipelines" in refused(folder).message


def test_syntax_and_what_fails_on_import_are_said_with_their_line(folder: Path) -> None:
    definitions.edit(folder, "RATE = 2", "RATE = 1 / 0")
    error = refused(folder)
    assert "ZeroDivisionError" in error.message and error.where == definitions.line_of(folder, "1 / 0")
    definitions.edit(folder, "RATE = 1 / 0", "RATE = = 2")
    assert refused(folder).where == definitions.line_of(folder, "= = 2")


def test_a_topic_that_is_declared_twice(folder: Path) -> None:
    text = (folder / "topics.py").read_text()
    again = text.split("\n\n", 1)[1].replace("rides =", "more =").replace("1 minute", "2 minutes")
    (folder / "topics.py").write_text(text + again)
    assert "declared twice" in refused(folder).message


def test_a_changed_file_is_read_again_and_two_catalogues_stand_beside_each_other(folder: Path, tmp_path: Path) -> None:
    other = definitions.write(tmp_path / "other", lateness="7 minutes")
    first, second = load(folder), load(other)
    assert first.topics["rides"] != second.topics["rides"]
    assert load(folder).topics["rides"] == first.topics["rides"]
    definitions.edit(folder, "1 minute", "9 minutes", file="topics.py")
    assert load(folder).topics["rides"].lateness.total_seconds() == 540


def test_a_changed_file_of_a_package_is_read_again(folder: Path) -> None:
    (folder / "prices").mkdir()
    (folder / "prices" / "__init__.py").write_text("")
    (folder / "prices" / "taxes.py").write_text("RATE = 2\n")
    definitions.edit(folder, "RATE = 2", "from prices.taxes import RATE")
    before = load(folder).pipelines["demand"].version
    (folder / "prices" / "taxes.py").write_text("RATE = 34\n")
    assert load(folder).pipelines["demand"].version != before


def test_a_broken_file_breaks_no_other(folder: Path) -> None:
    (folder / "pipelines" / "supply.py").write_text("X = = 1\n")
    loaded = load(folder)
    assert set(loaded.pipelines) == {"demand"} and set(loaded.broken) == {"supply"}
    with pytest.raises(DefinitionError, match="invalid syntax"):
        loaded.pipeline("supply")
