"""Build generations with Spark: its tasks write the slices, its driver commits the manifest.

>>> import torc.spark
>>> torc.spark.write(df, "s3://bucket/pages", key="url", value="html", reservation="pages.reservation")

Needs Spark 4.0 or later, with this package and pyarrow on every machine, and an object store or a directory that all
machines share. The credentials of an object store are in the environment of the driver and of the executors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Union

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

import torc

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["TorcDataSource", "partitioned", "write"]

#: Columns that `partitioned` returns and the data source expects.
_BUCKET, _KEY, _VALUE = "torc_bucket", "key", "value"
_ORDER = "torc_order_"
#: Types whose JSON equals that of `kvctl build --value-json`.
_JSON_TYPES = (StringType, BooleanType, ByteType, ShortType, IntegerType, LongType)
#: Options of the data source, as text from Spark: those of `torc.plan_build`.
_OPTIONS = {
    "buckets": int,
    "shape": str,
    "payload_bytes": int,
    "fingerprint_bits": int,
    "duplicates": str,
    "partitions": int,
    "reservation": str,
    "memory": int,
    "gate_rate": float,
}


def write(
    df: DataFrame,
    out: Union[str, os.PathLike[str]],
    *,
    key: str = "key",
    value: Optional[str] = None,
    value_json: Sequence[str] = (),
    order_by: Sequence[str] = (),
    overwrite: bool = False,
    **options: Any,
) -> None:
    """Build a generation from a data frame at `out`, a directory or a URL: `s3://BUCKET/PREFIX` or `file:///PATH`.

    `options` are those of `torc.plan_build`, above all `reservation` (the file that `kvctl generation reserve` wrote),
    `buckets` (most concurrent tasks) and `memory` (per task). `partitioned` describes the columns.

    A failed job leaves no manifest. With `overwrite`, `out` may have generations: this one becomes the newest, and
    the others stay beside it.
    """
    rows = partitioned(df, key=key, value=value, value_json=value_json, order_by=order_by, **options)
    rows.sparkSession.dataSource.register(TorcDataSource)
    if "reservation" in options:
        options["reservation"] = os.path.abspath(options["reservation"])
    path = torc.plan_build(out, **options).out
    writer = rows.write.format(TorcDataSource.name()).options(**options)
    writer.mode("overwrite" if overwrite else "append").save(path)


def partitioned(
    df: DataFrame,
    *,
    key: str = "key",
    value: Optional[str] = None,
    value_json: Sequence[str] = (),
    order_by: Sequence[str] = (),
    **options: Any,
) -> DataFrame:
    """Prepare rows for the data source: partitioned by bucket, with columns of bucket, key and value.

    `key` and `value` name columns of text or bytes. With `value_json`, the value is a JSON object of these columns of
    text, integers or booleans; without either, it is empty. `duplicates="first"` and `"last"` need `order_by`, columns
    that order the rows, because partitioning does not keep their order.

    `options` are those of `torc.plan_build`. Pass the same to the data source: `.write.format("torc").options(...)`.
    """
    _check_columns(df.schema, key, value, value_json, order_by)
    if (options.get("duplicates", "error") == "error") == bool(order_by):
        raise ValueError('order_by and duplicates="first" or "last" need each other')
    plan = torc.plan_build(".", **options)
    if value_json:
        content = sql.to_json(sql.struct(*(df[name] for name in value_json)), {"ignoreNullFields": "false"})
    else:
        content = sql.lit("") if value is None else df[value]
    columns = [df[key].cast("binary").alias(_KEY), content.cast("binary").alias(_VALUE)]
    order = [df[name].alias(f"{_ORDER}{number}") for number, name in enumerate(order_by)]
    rows = df.select(*columns, *order)

    def with_buckets(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            buckets = pyarrow.array(plan.buckets_of(batch.column(_KEY)))
            yield pyarrow.RecordBatch.from_arrays([buckets, *batch.columns], [_BUCKET, *batch.schema.names])

    schema = StructType([StructField(_BUCKET, IntegerType(), False), *rows.schema.fields])
    rows = rows.mapInArrow(with_buckets, schema)
    if hasattr(rows, "repartitionById"):
        rows = rows.repartitionById(plan.buckets, _BUCKET)
    else:  # Before Spark 4.1: a task may get several buckets or none.
        rows = rows.repartition(plan.buckets, _BUCKET)
    if order:
        # Also order ties, so a task that runs again makes the same files.
        names = [f"{_ORDER}{number}" for number in range(len(order))]
        rows = rows.sortWithinPartitions(_BUCKET, *names, _VALUE)
    return rows.select(_BUCKET, _KEY, _VALUE)


def _check_columns(
    schema: StructType, key: str, value: Optional[str], value_json: Sequence[str], order_by: Sequence[str]
) -> None:
    if value is not None and value_json:
        raise ValueError("value and value_json exclude each other")
    given = {field.name: field.dataType for field in schema.fields}
    for name in (key, value, *value_json, *order_by):
        if name is not None and name not in given:
            raise ValueError(f"the data frame has no column `{name}`: it has {', '.join(given)}")
    for name in (key, value):
        if name is not None and not isinstance(given[name], (StringType, BinaryType)):
            raise TypeError(f"the column `{name}` is of type {given[name].simpleString()}: cast it to string or binary")
    for name in value_json:
        if not isinstance(given[name], _JSON_TYPES):
            raise TypeError(f"the column `{name}` is of type {given[name].simpleString()}: cast it to string")


class TorcDataSource(DataSource):
    """`format("torc")`: writes the rows that `partitioned` returns. `mode("append")` needs a place without generations."""

    @classmethod
    def name(cls) -> str:
        return "torc"

    def writer(self, schema: StructType, overwrite: bool) -> _Writer:
        wanted = [(_BUCKET, IntegerType()), (_KEY, BinaryType()), (_VALUE, BinaryType())]
        if [(field.name, field.dataType) for field in schema.fields] != wanted:
            columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
            raise ValueError(f"unexpected columns {columns}: write the rows that torc.spark.partitioned returns")
        given = {name.lower(): text for name, text in self.options.items()}
        path = given.pop("path", "")
        if not os.path.isabs(path) and ":" not in path:
            raise ValueError("save to a URL, or to an absolute path that all machines share")
        unknown = sorted(given.keys() - _OPTIONS.keys())
        if unknown:
            raise ValueError(f"unknown option: {', '.join(unknown)}; use {', '.join(_OPTIONS)}")
        options: dict[str, Any] = {name: _OPTIONS[name](text) for name, text in given.items()}
        plan = torc.plan_build(path, **options)
        plan.begin(overwrite=overwrite)
        return _Writer(plan, overwrite)


@dataclass
class _Written(WriterCommitMessage):
    receipt: bytes


class _Writer(DataSourceArrowWriter):
    def __init__(self, plan: torc.BuildPlan, overwrite: bool) -> None:
        self.plan = plan
        self.overwrite = overwrite

    def write(self, iterator: Iterator[RecordBatch]) -> _Written:
        first = next(iterator, None)
        if first is None:
            return _Written(self.plan.write({}))

        def batches() -> Iterator[RecordBatch]:
            yield first
            yield from iterator

        stream = pyarrow.RecordBatchReader.from_batches(first.schema, batches())
        return _Written(self.plan.write(stream, key=_KEY, value=_VALUE, bucket=_BUCKET))

    def commit(self, messages: list[Optional[WriterCommitMessage]]) -> None:
        receipts = [message.receipt for message in messages if isinstance(message, _Written)]
        if len(receipts) != len(messages):
            raise RuntimeError("Spark has lost the receipt of a task: run the job again")
        self.plan.commit(receipts, overwrite=self.overwrite)

    def abort(self, messages: list[Optional[WriterCommitMessage]]) -> None:
        """Do nothing: the next attempt uses the tasks' files, and another job may be about to name them."""
