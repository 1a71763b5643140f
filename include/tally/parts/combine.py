"""Finds out of a pipeline whether its rows can be added up from parts, by its function's plan alone."""

from __future__ import annotations

import re

from pyspark.sql.types import StructType

from tally.base.errors import DefinitionError
from tally.catalog.spec import Pipeline
from tally.checks.definition import Definition
from tally.checks.plan_rules import check_names, incomparable
from tally.kinds import kind_of
from tally.parts.rules import Refusal, refusal
from tally.parts.split import Split, split

# Types of ids that the driver tells apart as Spark does.
IDS = re.compile(r"TINYINT|SMALLINT|INT|INTEGER|BIGINT|LONG|STRING|BINARY|DECIMAL(\(.*\))?")


def in_two(definition: Definition) -> Split | Refusal:
    """A good definition's function in two, or why the pipeline needs a query of its own."""
    pipeline, spark = definition.pipeline, definition.spark
    kind = kind_of(pipeline)
    if kind.alone:
        return Refusal(pipeline=pipeline.name, reason=kind.alone, where=pipeline.where)
    if spark.conf.get("spark.sql.ansi.enabled") != "true":
        nulls = "without Spark's ANSI mode a sum that outgrows its type is null, and parts take that for no values"
        return Refusal(pipeline=pipeline.name, reason=nulls, where=pipeline.where)
    for topic in pipeline.reads:
        strange = [field.type for field in topic.schema if field.name == topic.unique and not IDS.fullmatch(field.type)]
        if strange:
            apart = f"ids of type {strange[0]} are told apart in a query of its own"
            return Refusal(pipeline=pipeline.name, reason=apart, where=pipeline.where)
    refused = refusal(definition.plan, definition.given, pipeline)
    if refused:
        return refused
    found = split(spark, definition.out, definition.given[0])
    reason = unstorable(found.schema, pipeline) if found.window else "none of its groups is seen to be its window"
    return Refusal(pipeline=pipeline.name, reason=reason, where=pipeline.where) if reason else found


def unstorable(schema: StructType, pipeline: Pipeline) -> str | None:
    """Why parts of these columns cannot stand in a table, and be told apart there."""
    for field in schema.fields:
        bad = incomparable(field.dataType)
        if bad:
            return f"it {'groups by' if field.name.startswith('g') else 'keeps'} a {bad}, which parts cannot hold"
    try:
        check_names(schema, pipeline)
    except DefinitionError as fault:
        return fault.message
    return None
