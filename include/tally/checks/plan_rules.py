"""What a plan must be for both layers to give the same rows: what could differ is refused, with line and cure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tally.catalog.spec import Pipeline
from tally.checks.aggregates import check_order, check_rounding, check_zeros
from tally.checks.grouping import Lineage, check_grouping, top_aggregate
from tally.checks.plan import GIVEN, Expression, Node, refuse
from tally.kinds import kind_of

CONSTANTS = {"LocalRelation", "LogicalRDD", "OneRowRelation", "Range"}
ROW_BY_ROW = {"Project", "SubqueryAlias", "ResolvedHint", "Repartition", "RepartitionByExpression"}
KNOWN = {GIVEN, "Filter", "Join", "Aggregate", "Expand", "Generate", "Union", "Deduplicate", "Distinct"}
CLOCKS = {
    "CurrentTimestamp", "CurrentTimestampLike", "CurrentDate", "CurrentTime", "Now", "LocalTimestamp", "CurrentUser",
    "CurrentDatabase", "CurrentCatalog", "CurrentTimeZone", "SparkVersion", "InputFileName", "InputFileBlockStart",
    "InputFileBlockLength", "SparkPartitionID", "MonotonicallyIncreasingID",
}  # fmt: skip
SUBQUERIES = {"ScalarSubquery", "Exists", "ListQuery", "LateralSubquery", "InSubquery"}
# Text that Spark reads as the clock where it makes a time of it.
CLOCK_WORDS = {"now", "today", "tomorrow", "yesterday"}
TIMES = re.compile("date|timestamp")
FROM_TEXT = {"Cast", "ParseToTimestamp", "ParseToDate"}
FROM_DOCUMENT = {"JsonToStructs", "CsvToStructs", "XmlToStructs", "VariantGet"}
REFUSED_BY_DELTA = set(" ,;{}()\n\t=")
AT_ANY_TIME = "use the event time; both layers must give the same rows at any time"
COMPARED = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "binary", "date",
    "timestamp", "timestamp_ntz",
)  # fmt: skip


def check_plan(plan: Node, schema: StructType, given: Sequence[DataFrame], pipeline: Pipeline) -> None:
    """Refuse a function whose rows could differ between the layers, or from one run to the next."""
    lineage = Lineage(plan, given)
    for node in plan.walk():
        check_node(node, pipeline)
        for expression in node.expressions:
            check_steady(expression, pipeline)
    check_types(schema, pipeline)
    for columns in (schema, *(frame.schema for frame in given)):
        check_names(columns, pipeline)
    if kind_of(pipeline).row_by_row:
        check_single(plan, lineage, pipeline)
    else:
        check_above(plan, pipeline)
        check_grouping(plan, lineage, pipeline)
    check_order(plan, lineage, pipeline)
    check_rounding(plan, pipeline)
    check_zeros(plan, pipeline)


def check_node(node: Node, pipeline: Pipeline) -> None:
    """Refuse nodes whose rows follow from more than the events: other tables, partitions, order, chance."""
    if not node.below and node.given is None and node.kind not in CONSTANTS:
        cure = "read it as a topic, or write what is constant into the function"
        refuse(pipeline, f"the function reads something that is no topic: {node.kind}", cure)
    if node.kind in ("Deduplicate", "Distinct"):
        # Which of several rows stays is chance, and a stream forgets what it has seen by rules of its own.
        refuse(pipeline, "it drops duplicates itself", "declare the topic's unique=, and both layers take each id once")
    if node.below and node.kind not in KNOWN | ROW_BY_ROW:
        cure = "use select, where, join, groupBy and a udf over single events"
        refuse(pipeline, f"what {node.kind} gives depends on how rows are cut into batches and partitions", cure)


def check_steady(expression: Expression, pipeline: Pipeline) -> None:
    """Refuse what is another value at another time, or each time it is worked out."""
    steady = bool(expression.jvm.deterministic())
    for one, _ in expression.walk():
        text = clock_word(one)
        if one.kind in CLOCKS or text:
            refuse(pipeline, f"the function reads the clock or chance: {text or call(one)}", AT_ANY_TIME, one)
        if takes_today(one):
            cure = 'name the format: F.to_timestamp(x, "yyyy-MM-dd HH:mm:ss"), or F.try_to_timestamp with one'
            refuse(
                pipeline, "it makes a time of text without a format: of 12:30 Spark makes that time of today", cure, one
            )
        if one.kind in SUBQUERIES:
            refuse(pipeline, "the function asks a subquery", "join the topics", one)
        if not steady and not one.jvm.deterministic() and all(child.jvm.deterministic() for child in one.below):
            refuse(pipeline, f"the function reads the clock or chance: {call(one)}", AT_ANY_TIME, one)


def call(one: Expression) -> str:
    """An expression as SQL has it."""
    return f"{one.jvm.prettyName()}()"


def clock_word(one: Expression) -> str:
    """The text that Spark reads as the clock where this makes a time of it; nothing where it does not."""
    if one.kind not in FROM_TEXT or not TIMES.search(one.type):
        return ""
    for child in one.below[:1]:
        if child.type == "string" and child.jvm.foldable():
            text = folded(child)
            if text.strip().lower().split(" ")[0] in CLOCK_WORDS:
                return text.strip()
    return ""


def takes_today(one: Expression) -> bool:
    """Whether text of an event may become a time whose date is that of the day on which it is read."""
    if one.kind not in FROM_TEXT | FROM_DOCUMENT or "timestamp" not in one.type:
        return False
    if one.kind in FROM_DOCUMENT:
        return "timestampformat" not in one.words.lower()
    if len(one.below) > 1:  # a format
        return False
    return "string" in one.below[0].type and not one.below[0].jvm.foldable()


def folded(constant: Expression) -> str:
    """What a text without columns comes to."""
    if constant.kind == "Literal":
        return constant.words
    try:
        return str(constant.jvm.eval(None))
    except Exception:  # it is only worked out once its plan is optimized: nobody can say that it is no such word
        return next(iter(CLOCK_WORDS))


def check_names(columns: DataType, pipeline: Pipeline) -> None:
    """Refuse names inside structs that a Delta table cannot have; it does not tell upper case from lower."""
    if isinstance(columns, StructType):
        names = [name.lower() for name in columns.names]
        twice = next((name for name in columns.names if names.count(name.lower()) > 1), None)
        if twice is not None:
            refuse(pipeline, f"{twice!r} is twice in a struct, and a table cannot hold that", "give each its own name")
        for field in columns.fields:
            if REFUSED_BY_DELTA.intersection(field.name):
                refuse(pipeline, f"{field.name!r} cannot name a table's column", "leave out blanks and , ; { } ( ) =")
            check_names(field.dataType, pipeline)
    elif isinstance(columns, ArrayType):
        check_names(columns.elementType, pipeline)
    elif isinstance(columns, MapType):
        check_names(columns.keyType, pipeline)
        check_names(columns.valueType, pipeline)


def check_types(schema: StructType, pipeline: Pipeline) -> None:
    """Refuse a measure of which nobody can say that two are the same."""
    for field in schema.fields:
        bad = incomparable(field.dataType)
        if bad is not None and field.name != "window":
            cure = "give it as text or numbers; of a map: F.array_sort(F.map_entries(...))"
            refuse(pipeline, f"{field.name!r} holds a {bad}, and two of these cannot be compared", cure)


def incomparable(kind: DataType) -> str | None:
    """The type within a type that has no equality both layers can be held to."""
    if isinstance(kind, ArrayType):
        return incomparable(kind.elementType)
    if isinstance(kind, StructType):
        return next((bad for field in kind.fields if (bad := incomparable(field.dataType))), None)
    name = kind.simpleString()
    return None if name.split("(")[0] in COMPARED else name.upper().split("<")[0]


def check_single(plan: Node, lineage: Lineage, pipeline: Pipeline) -> None:
    """Of single events: no step makes several rows of one, or one of several, and the topic's id tells rows apart."""
    (topic,) = pipeline.reads
    for node in plan.walk():
        if node.kind not in ROW_BY_ROW | {GIVEN, "Filter"}:
            cure = "use select, where and a udf over single events; to aggregate or to join, window=tumbling(...)"
            first = node.expressions[0] if node.expressions else None
            refuse(pipeline, f"{node.kind} does not give one row for one event", cure, first)
    columns = dict(plan.output)
    if lineage.origin(columns["window"]) != (0, "window"):
        cure = 'keep "window", the column that the engine gives, in the select'
        refuse(pipeline, "its window is not the slot that it is given", cure, field="window")
    keys = [lineage.origin(columns[name]) for name in pipeline.key]
    if topic.unique not in [column for _, column in filter(None, keys)]:
        cure = f'key="{topic.unique}", and keep it as it is in the select'
        refuse(pipeline, f"its key lacks the unique id of {topic.name}, {topic.unique!r}", cure, field="key")


def check_above(plan: Node, pipeline: Pipeline) -> None:
    """Above its aggregation a stream can only rename and compute: a row that it gave out it never takes back."""
    above, aggregate = top_aggregate(plan)
    if aggregate is None:
        if any(node.kind == "Aggregate" for node in plan.walk()):
            cure = "aggregate once, last; join or unite the events before it"
            refuse(pipeline, "rows meet above an aggregation", cure)
        if kind_of(pipeline).by_event:
            keys = ", ".join(f'"{name}"' for name in ("window", *pipeline.key))
            cure = f"groupBy({keys}).agg(...); where a row an event is what you want: window=events(...)"
            refuse(pipeline, "it aggregates nothing: a window may have several rows of one key", cure)
        return
    for node in above:
        if node.kind == "Filter" and pipeline.append_only:
            continue  # a session is given out once, when it is over
        first = node.expressions[0] if node.expressions else None
        if node.kind == "Filter":
            cure = "filter the events before groupBy, or give the condition as a measure and let the reader filter"
            refuse(pipeline, "it filters what it has aggregated: a stream never takes a row back", cure, first)
        if node.kind not in ROW_BY_ROW:
            cure = "end with groupBy(...).agg(...) and selects of single rows"
            refuse(pipeline, f"{node.kind} stands above its aggregation", cure, first)
