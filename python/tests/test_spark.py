"""Generations from real Spark tasks. It takes minutes and some hundred MB, so TORC_TEST_SPARK=1 asks for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import torc
from nodes import PATIENCE_S, beside_kvd
from stores import S3

if os.environ.get("TORC_TEST_SPARK") != "1":
    pytest.skip("TORC_TEST_SPARK=1 asks for Spark", allow_module_level=True)
if shutil.which("java") is None:
    pytest.skip("Spark needs Java 17 or later", allow_module_level=True)
pytest.importorskip("pyspark", reason="pip install './python[engines]'")

import pyarrow  # noqa: E402
import torc.spark  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNT = 5000
ROWS = [(f"https://example.org/{number}", f"page {number}", number, number % 3 == 0) for number in range(COUNT)]


@pytest.fixture(scope="module")
def spark(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two threads; a task may fail twice. Its processes inherit the environment that `s3` has made."""
    # The interpreter that has this package, not the first one on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "300",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master("local[2,3]").config(map=settings)
    session: SparkSession = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def pages(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, "url string, html string, size long, hot boolean").repartition(5)


def manifest_of(out: Path) -> Path:
    """The newest one: `kvctl build` gives its own no number."""
    return max(out.glob("generation*.json"))


def manifest(out: Path) -> Any:
    return json.loads(manifest_of(out).read_text())


def has_manifest(out: Path) -> bool:
    return any(out.glob("generation*.json"))


def slices(out: Path) -> list[Any]:
    """Its slices, not where they are in their files."""
    listed = [each for file in manifest(out)["files"] for each in file["slices"]]
    return [{**each, "at": None} for each in listed]


def parts(out: Path) -> list[str]:
    return sorted(path.name for path in out.glob("*.part"))


def kvctl(*arguments: str) -> str:
    command = [beside_kvd("kvctl"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_kvctl(directory: Path, *arguments: str) -> Path:
    """What `kvctl build` makes of the same rows."""
    lines = [json.dumps({"url": url, "html": html, "size": size, "hot": hot}) for url, html, size, hot in ROWS]
    (directory / "rows.ndjson").write_text("\n".join(lines) + "\n")
    out = directory / "kvctl"
    source = ["--from", str(directory / "rows.ndjson"), "--out", str(out), "--workers", "1"]
    kvctl("build", *source, "--key", "url", *arguments)
    return out


def test_a_cluster_serves_what_spark_built_and_kvctl_builds_the_same(
    pages: DataFrame, playground: list[str], tmp_path: Path
) -> None:
    cluster = ["--endpoint", f"http://{playground[0]}"]
    kvctl(*cluster, "namespace", "create", "pages", "--mode", "static")
    reservation = tmp_path / "reservation"
    kvctl(*cluster, "generation", "reserve", "pages", "--to", str(reservation))
    local = by_kvctl(tmp_path, "--value", "html", "--reservation", str(reservation))
    buckets = json.loads((local / "plan.json").read_text())["buckets"]
    options: dict[str, Any] = {"key": "url", "value": "html", "reservation": str(reservation)}
    torc.spark.write(pages, tmp_path / "few", buckets=buckets, **options)
    torc.spark.write(pages, f"file://{tmp_path}/many", buckets=8, **options)

    assert manifest_of(tmp_path / "few").read_bytes() == manifest_of(local).read_bytes()
    for name in parts(local):
        assert (tmp_path / "few" / name).read_bytes() == (local / name).read_bytes()
    assert len(parts(tmp_path / "many")) == 8
    assert slices(tmp_path / "many") == slices(local), "the same slices in other files"
    kvctl("generation", "verify", str(tmp_path / "many"))

    kvctl(*cluster, "generation", "attach", str(tmp_path / "many"))
    number = json.loads(kvctl(*cluster, "--output", "json", "generation", "list", "pages"))["number"]
    kvctl(*cluster, "generation", "promote", str(number))
    with torc.connect(playground, namespace="pages", timeout=PATIENCE_S) as client:
        values = client.get_many([url.encode() for url, *_ in ROWS])
        assert values == [html.encode() for _, html, *_ in ROWS]
        assert client.get(b"https://example.org/absent") is None


def test_json_of_columns_is_what_kvctl_makes_of_them(spark: SparkSession, tmp_path: Path) -> None:
    odd = [("a", 'quote " and \\ and /', None, True), ("b", "tab\t, line\n, ü, 🦀", -(2**63), None), ("c", None, 0, False)]
    df = spark.createDataFrame([*ROWS, *odd], "url string, html string, size long, hot boolean")
    torc.spark.write(df, tmp_path / "spark", key="url", value_json=["size", "html", "hot"], buckets=2)
    lines = [json.dumps(dict(zip(("url", "html", "size", "hot"), row)), ensure_ascii=False) for row in [*ROWS, *odd]]
    (tmp_path / "rows.ndjson").write_text("\n".join(lines) + "\n")
    arguments = ["--from", str(tmp_path / "rows.ndjson"), "--out", str(tmp_path / "kvctl")]
    kvctl("build", *arguments, "--key", "url", "--value-json", "size,html,hot")
    assert slices(tmp_path / "spark") == slices(tmp_path / "kvctl")
    value = torc.Generation(tmp_path / "spark").get(b"https://example.org/3")
    assert value == b'{"size":3,"html":"page 3","hot":true}'


def test_a_task_that_fails_midway_is_repeated_and_nothing_of_it_stays(pages: DataFrame, tmp_path: Path) -> None:
    rows = torc.spark.partitioned(pages, key="url", value="html", buckets=4)
    failed = tmp_path / "failed"
    failed.mkdir()

    def fail_once(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        for number, batch in enumerate(batches):
            if number == 2 and context is not None and context.attemptNumber() == 0:
                (failed / str(context.partitionId())).touch()
                raise ConnectionError("this attempt is over")
            yield batch

    failing = rows.mapInArrow(fail_once, rows.schema)
    failing.sparkSession.dataSource.register(torc.spark.TorcDataSource)
    failing.write.format("torc").option("buckets", 4).mode("append").save(str(tmp_path / "failing"))
    assert len(list(failed.iterdir())) == 4, "each task has failed once"
    torc.spark.write(pages, tmp_path / "whole", key="url", value="html", buckets=4)
    assert manifest(tmp_path / "failing") == manifest(tmp_path / "whole")
    assert parts(tmp_path / "failing") == parts(tmp_path / "whole")
    assert len(list((tmp_path / "failing").iterdir())) == len(parts(tmp_path / "failing")) + 1


def test_a_key_that_is_there_twice_fails_the_job_or_follows_an_order(spark: SparkSession, tmp_path: Path) -> None:
    # In both partitions of the data frame.
    twice = [(key, f"{key}{at}", at) for at in range(2) for key in ("a", "b", "c")]
    df = spark.createDataFrame(twice, "key string, value string, at int").repartition(2, "at")
    with pytest.raises(Exception, match="is there more than once"):
        torc.spark.write(df, tmp_path / "error", value="value", buckets=2)
    assert not has_manifest(tmp_path / "error")
    for rule, expected in (("first", b"b0"), ("last", b"b1")):
        torc.spark.write(df, tmp_path / rule, value="value", duplicates=rule, order_by=["at"], buckets=2)
        built = torc.Generation(tmp_path / rule)
        assert (len(built), built.duplicates, built.get(b"b")) == (3, 3, expected)
    with pytest.raises(ValueError, match="order_by"):
        torc.spark.write(df, tmp_path / "no order", value="value", duplicates="last")
    # The job that failed can be run again where it was.
    torc.spark.write(df.where("at = 0"), tmp_path / "error", value="value", buckets=2)
    assert len(torc.Generation(tmp_path / "error")) == 3


def test_a_generation_stays_beside_the_next_one(pages: DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "out"
    torc.spark.write(pages, out, key="url", value="html", buckets=2)
    before = manifest(out)
    with pytest.raises(Exception, match="complete generation"):
        torc.spark.write(pages, out, key="url", value="html", buckets=2)
    nulls = pages.selectExpr("url", "if(size = 77, null, html) as html")
    with pytest.raises(Exception, match="has nulls"):
        torc.spark.write(nulls, out, key="url", value="html", buckets=2, overwrite=True)
    assert manifest(out) == before and len(torc.Generation(out)) == COUNT
    torc.spark.write(pages.where("size < 100"), out, key="url", buckets=2, overwrite=True)
    assert len(torc.Generation(out)) == 100
    numbers = [path.name.split("-")[1] for path in sorted(out.glob("*.json"))]
    assert numbers == ["000001", "000002"]


def test_what_cannot_be_written_is_refused_before_a_task_runs(pages: DataFrame, tmp_path: Path) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("no column `title`", {"key": "url", "value": "title"}),
        ("`size` is of type bigint", {"key": "url", "value": "size"}),
        ("exclude each other", {"key": "url", "value": "html", "value_json": ["size"]}),
        ("shape must be values", {"key": "url", "shape": "round"}),
        ("cannot read", {"key": "url", "reservation": str(tmp_path / "nowhere")}),
    ]
    for message, options in cases:
        with pytest.raises((ValueError, TypeError, OSError), match=message):
            torc.spark.write(pages, tmp_path / "out", **options)
    for url in ("ftp://host/pages", "s3://torc:80/pages", "file://nas/pages", "file:///pages?x"):
        with pytest.raises(Exception, match="is not a usable location"):
            torc.spark.write(pages, url, key="url")
    pages.sparkSession.dataSource.register(torc.spark.TorcDataSource)
    writer = pages.write.format("torc").mode("append")
    with pytest.raises(Exception, match="write the rows that torc.spark.partitioned returns"):
        writer.save(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    rows = torc.spark.partitioned(pages, key="url", value="html", buckets=4)
    for message, options in (("unknown option: bucket;", {"bucket": 4}), ("absolute path", {"path": "out"})):
        with pytest.raises(Exception, match=message):
            rows.write.format("torc").mode("append").options(path=str(tmp_path / "out")).options(**options).save()


def test_rows_that_were_not_partitioned_by_this_plan_are_refused(pages: DataFrame, tmp_path: Path) -> None:
    rows = torc.spark.partitioned(pages, key="url", value="html", buckets=4)
    rows.sparkSession.dataSource.register(torc.spark.TorcDataSource)
    other = rows.write.format("torc").mode("append").option("buckets", 8)
    with pytest.raises(Exception, match="with this plan"):
        other.save(str(tmp_path / "other"))
    shuffled = rows.repartition(3).write.format("torc").mode("append").option("buckets", 4)
    with pytest.raises(Exception, match="do not shuffle them"):
        shuffled.save(str(tmp_path / "shuffled"))
    for name in ("other", "shuffled"):
        assert not has_manifest(tmp_path / name)


def test_tasks_send_their_files_to_an_object_store(
    pages: DataFrame, playground: list[str], s3: S3, tmp_path: Path
) -> None:
    cluster = ["--endpoint", f"http://{playground[0]}"]
    kvctl(*cluster, "namespace", "create", "stored", "--mode", "static")
    reservation = tmp_path / "reservation"
    kvctl(*cluster, "generation", "reserve", "stored", "--to", str(reservation))
    options: dict[str, Any] = {"key": "url", "value": "html", "reservation": str(reservation), "buckets": 4}
    out = s3.url()
    torc.spark.write(pages, out, **options)
    torc.spark.write(pages, tmp_path / "here", **options)
    here = {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()}
    assert s3.content(out) == here, "the same objects, under the same names"
    with pytest.raises(Exception, match="complete generation"):
        torc.spark.write(pages, out, **options)
    # The nodes of this test may be built without S3, so a directory gets what the object store has.
    copied = tmp_path / "copied"
    copied.mkdir()
    for name, content in s3.content(out).items():
        (copied / name).write_bytes(content)
    kvctl(*cluster, "generation", "attach", str(copied))
    number = json.loads(kvctl(*cluster, "--output", "json", "generation", "list", "stored"))["number"]
    kvctl(*cluster, "generation", "promote", str(number))
    with torc.connect(playground, namespace="stored", timeout=PATIENCE_S) as client:
        assert client.get_many([url.encode() for url, *_ in ROWS]) == [html.encode() for _, html, *_ in ROWS]


def test_a_killed_task_and_one_that_runs_twice_make_the_same_objects(
    pages: DataFrame, s3: S3, tmp_path: Path
) -> None:
    out = s3.url()
    plan = torc.plan_build(out, buckets=4)
    rows = torc.spark.partitioned(pages, key="url", value="html", buckets=4)
    killed = tmp_path / "killed"
    killed.mkdir()

    def twice(batches: Iterable[Any]) -> Iterator[Any]:
        """Two attempts at once; of the first task, one before them is killed with its process."""
        from concurrent.futures import ThreadPoolExecutor

        from pyspark import TaskContext

        table = pyarrow.Table.from_batches(batches)
        context = TaskContext.get()
        assert context is not None

        def attempt(_: int) -> bytes:
            return plan.write(table, bucket="torc_bucket")

        if context.attemptNumber() == 0 and context.partitionId() == 0:
            plan.write(table.slice(0, table.num_rows // 2), bucket="torc_bucket")
            (killed / "once").touch()
            os._exit(1)
        with ThreadPoolExecutor(2) as threads:
            receipts = list(threads.map(attempt, range(2)))
        yield pyarrow.RecordBatch.from_pydict({"receipt": pyarrow.array(receipts, pyarrow.binary())})

    plan.begin()
    receipts = [row.receipt for row in rows.mapInArrow(twice, "receipt binary").collect()]
    assert (killed / "once").exists() and len(receipts) == 8
    plan.commit([bytes(receipt) for receipt in receipts])
    torc.spark.write(pages, tmp_path / "once", key="url", value="html", buckets=4)
    there = s3.content(out)
    for path in (tmp_path / "once").iterdir():
        assert there[path.name] == path.read_bytes()
    assert len(there) == len(list((tmp_path / "once").iterdir())) + 1, "the killed attempt left a file of its rows"
