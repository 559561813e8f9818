"""Build a generation with Dask: its workers write the slices, this program commits the manifest.

Run it with a directory that does not exist yet, or with a URL: python examples/build_dask.py s3://bucket/pages
Ray Data and others need the same four steps: buckets, a shuffle by bucket, a write for each partition, a commit.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import dask
import dask.dataframe
import pandas
import pyarrow

import torc

if TYPE_CHECKING:
    from pandas import DataFrame

ROWS = 10_000


def with_buckets(part: DataFrame, plan: torc.BuildPlan) -> DataFrame:
    buckets = plan.buckets_of(pyarrow.array(part["url"], pyarrow.string()))
    return part.assign(bucket=pyarrow.array(buckets).to_numpy())


def write(part: DataFrame, plan: torc.BuildPlan) -> bytes:
    """Safe to repeat: the same rows make files of the same names."""
    table = pyarrow.Table.from_pandas(part, preserve_index=False)
    return plan.write(table, key="url", value="html", bucket="bucket")


def main(out: str) -> None:
    rows = {"url": [f"https://example.org/{n}" for n in range(ROWS)], "html": [f"page {n}" for n in range(ROWS)]}
    pages = dask.dataframe.from_pandas(pandas.DataFrame(rows), npartitions=4)

    # For a cluster: reservation="FILE", as `kvctl generation reserve` wrote it. All workers must reach `out`.
    plan = torc.plan_build(out, buckets=8)
    plan.begin()
    pages = pages.map_partitions(with_buckets, plan, meta={**pages.dtypes, "bucket": "int32"})
    pages = pages.shuffle("bucket")
    written = [dask.delayed(write)(part, plan) for part in pages.to_delayed()]
    receipts = dask.compute(*written, scheduler="processes")
    print(f"kvctl generation attach {plan.commit(receipts)}")


if __name__ == "__main__":
    main(sys.argv[1])
