"""Generations, built and read on this machine."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import torc
from nodes import beside_kvd
from stores import S3

ROWS = {b"key/%d" % number: b"value %d" % number for number in range(5000)}


def test_every_key_is_found_and_no_other(tmp_path: Path) -> None:
    built = torc.build(ROWS, tmp_path / "out")
    assert len(built) == len(ROWS) and built.false_positive_rate == 0 and built.duplicates == 0
    again = torc.Generation(tmp_path / "out")
    assert again.digest == built.digest and again.file_bytes > again.index_bytes > 0
    assert all(again.get(key) == value for key, value in ROWS.items())
    assert again.get(b"key/5000") is None


def test_the_order_of_rows_and_where_they_come_from_make_no_difference(tmp_path: Path) -> None:
    built = torc.build(ROWS, tmp_path / "mapping")
    backwards = torc.build(reversed(list(ROWS.items())), tmp_path / "pairs")
    assert backwards.digest == built.digest
    other = torc.build(ROWS, tmp_path / "other", digest_key=bytes(32))
    assert other.digest != built.digest


def test_a_table_or_a_stream_of_arrow_makes_the_same(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    built = torc.build(ROWS, tmp_path / "mapping")
    batch = pa.record_batch({"id": list(ROWS), "text": list(ROWS.values())})
    reader = pa.RecordBatchReader.from_batches(batch.schema, (batch.slice(at, 1000) for at in range(0, 5000, 1000)))
    assert torc.build(reader, tmp_path / "arrow", key="id", value="text").digest == built.digest


def test_the_command_line_makes_the_same(tmp_path: Path) -> None:
    kvctl = beside_kvd("kvctl")
    text = "\n".join(f"{key.decode()}\t{value.decode()}" for key, value in ROWS.items())
    (tmp_path / "rows.tsv").write_text(text + "\n")
    command = [kvctl, "build", "--no-header", "--from", str(tmp_path / "rows.tsv"), "--out", str(tmp_path / "kvctl")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # Files depend on the number of buckets too, which `kvctl` takes from the length of its input.
    ours, theirs = torc.build(ROWS, tmp_path / "torc"), torc.Generation(tmp_path / "kvctl")
    assert len(theirs) == len(ours)
    assert all(theirs.get(key) == value for key, value in ROWS.items())


def test_sets_and_payloads_keep_no_keys(tmp_path: Path) -> None:
    names = torc.build(((key, b"ignored") for key in ROWS), tmp_path / "set", shape="set", fingerprint_bits=20)
    assert all(names.get(key) == b"" for key in ROWS) and names.false_positive_rate == 0.5**20
    payloads = ((key, b"%04d" % number) for number, key in enumerate(ROWS))
    table = torc.build(payloads, tmp_path / "keyless", shape="keyless", payload_bytes=4)
    assert [table.get(key) for key in ROWS] == [b"%04d" % number for number in range(len(ROWS))]
    words = torc.build(((key, b"ignored") for key in ROWS), tmp_path / "ids", shape="ids")
    assert sorted(int(words.get(key) or b"-1") for key in ROWS) == list(range(len(ROWS)))


def test_one_row_of_a_key_counts(tmp_path: Path) -> None:
    twice = [(b"key", b"1"), (b"other", b""), (b"key", b"2")]
    with pytest.raises(torc.Refused, match="more than once"):
        torc.build(twice, tmp_path / "error")
    assert torc.build(twice, tmp_path / "first", duplicates="first").get(b"key") == b"1"
    last = torc.build(twice, tmp_path / "last", duplicates="last")
    assert (last.get(b"key"), last.duplicates) == (b"2", 1)


def test_a_build_goes_on_with_the_same_rows_only(tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[bytes, bytes]]:
        yield from list(ROWS.items())[:3000]
        raise ConnectionError("the source went away")

    for source in ("rows of today", None):
        with pytest.raises(ConnectionError):
            torc.build(broken(), tmp_path / str(source), source=source)
    taken_before: list[Any] = [None] * 3000
    rest = [*taken_before, *list(ROWS.items())[3000:]]
    resumed = torc.build(rest, tmp_path / "rows of today", source="rows of today")
    assert resumed.digest == torc.build(ROWS, tmp_path / "at once").digest
    with pytest.raises(torc.Refused, match="complete generation"):
        torc.build(ROWS, tmp_path / "rows of today", source="rows of today")
    others = ((tmp_path / "None", None), (tmp_path / "None", "rows of yesterday"), (tmp_path / "at once", None))
    for out, source in others:
        with pytest.raises(torc.Refused, match="another source"):
            torc.build(ROWS, out, source=source)


def test_what_cannot_be_built_is_refused(tmp_path: Path) -> None:
    with pytest.raises(torc.Refused, match="row 2"):
        torc.build([(b"a", b""), (b"", b"")], tmp_path / "key")
    with pytest.raises(torc.Refused, match="each must have 4"):
        torc.build([(b"a", b"12345")], tmp_path / "payload", shape="keyless", payload_bytes=4)
    with pytest.raises(TypeError, match="a key must be bytes, not str"):
        torc.build([("a", b"")], tmp_path / "text")  # type: ignore[list-item]
    with pytest.raises(ValueError, match="32 bytes"):
        torc.build(ROWS, tmp_path / "digest", digest_key=b"short")
    with pytest.raises(ValueError, match="shape must be"):
        torc.build(ROWS, tmp_path / "shape", shape="round")  # type: ignore[arg-type]
    with pytest.raises(torc.Refused, match="no complete generation"):
        torc.Generation(tmp_path / "nowhere")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(torc.Refused, match="not empty"):
        torc.build(ROWS, tmp_path / "full")
    assert os.listdir(tmp_path / "full") != []
    with pytest.raises(OSError):
        torc.build(ROWS, tmp_path / "full" / "letter.txt")


def partitioned(plan: torc.BuildPlan, tasks: int) -> list[dict[bytes, bytes]]:
    """All rows of a bucket in one task."""
    pa = pytest.importorskip("pyarrow")
    shares: list[dict[bytes, bytes]] = [{} for _ in range(tasks)]
    for (key, value), bucket in zip(ROWS.items(), pa.array(plan.buckets_of(list(ROWS))).to_pylist()):
        shares[bucket % tasks][key] = value
    return shares


def test_tasks_make_what_one_build_makes(tmp_path: Path) -> None:
    plan = torc.plan_build(tmp_path / "tasks")
    assert (plan.out, plan.buckets) == ((tmp_path / "tasks").as_uri(), 64)
    plan.begin()
    # As it travels to tasks. One of them is run twice.
    sent = pickle.loads(pickle.dumps(plan))
    receipts = [sent.write(rows) for rows in partitioned(plan, 3)]
    receipts.append(sent.write(partitioned(plan, 3)[1]))
    assert receipts[3] == receipts[1]
    assert not list((tmp_path / "tasks").glob("*.json"))
    assert plan.commit(receipts).startswith(f"{plan.out}/generation-000001-")
    built = torc.Generation(tmp_path / "tasks")
    alone = torc.build(ROWS, tmp_path / "alone", workers=1)
    assert built.digest == alone.digest and len(built) == len(ROWS)
    assert all(built.get(key) == value for key, value in ROWS.items())


def test_tasks_take_tables_and_check_their_buckets(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    plan = torc.plan_build(tmp_path / "out", buckets=5, shape="keyless", payload_bytes=4)
    assert plan.buckets == 8
    plan.begin()
    keys = pa.array(list(ROWS))
    payloads = pa.array([b"%04d" % number for number in range(len(ROWS))])
    table = pa.table({"id": keys, "payload": payloads, "bucket": pa.array(plan.buckets_of(keys))})
    receipt = plan.write(table, key="id", value="payload", bucket="bucket", scratch=tmp_path)
    plan.commit([receipt])
    built = torc.Generation(tmp_path / "out")
    assert [built.get(key) for key in ROWS] == payloads.to_pylist()
    for column, message in ((pa.array([0] * len(ROWS), pa.int32()), "with this plan"), (keys, "must have buckets")):
        wrong = table.set_column(2, "bucket", column)
        with pytest.raises((torc.Refused, TypeError), match=message):
            plan.write(wrong, key="id", value="payload", bucket="bucket", scratch=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "what failed leaves nothing behind"


def test_a_commit_is_of_its_own_tasks_and_once_for_each_bucket(tmp_path: Path) -> None:
    plan = torc.plan_build(tmp_path / "out")
    plan.begin()
    items = list(ROWS.items())
    halves = [plan.write(items[:2500]), plan.write(items[2500:])]
    with pytest.raises(torc.Refused, match="partition the rows by bucket"):
        plan.commit(halves)
    other = torc.plan_build(tmp_path / "out", buckets=8)
    with pytest.raises(torc.Refused, match="of another plan"):
        other.commit([halves[0]])
    with pytest.raises(ValueError, match="not a receipt"):
        plan.commit([b"thanks"])
    with pytest.raises(TypeError):
        plan.commit([None])  # type: ignore[list-item]
    with pytest.raises(torc.Refused, match="no complete generation"):
        torc.Generation(tmp_path / "out")
    plan.commit([plan.write(items)])
    with pytest.raises(torc.Refused, match="complete generation"):
        plan.begin()
    plan.begin(overwrite=True)
    plan.commit([plan.write(items[:7])], overwrite=True)
    assert len(torc.Generation(tmp_path / "out")) == 7


def test_tasks_send_their_files_to_an_object_store(s3: S3, tmp_path: Path) -> None:
    there, here = torc.plan_build(s3.url(), buckets=4), torc.plan_build(tmp_path / "here", buckets=4)
    for plan in (there, here):
        plan.begin()
    sent = pickle.loads(pickle.dumps(there))
    receipts = [sent.write(rows) for rows in partitioned(there, 3)]
    # An attempt that runs twice at once, after one that was killed before it had sent all.
    s3.remove(s3.names(there.out)[0])
    with ThreadPoolExecutor(2) as threads:
        for again in threads.map(sent.write, [partitioned(there, 3)[0]] * 2):
            assert again == receipts[0]
    receipts += [sent.write(rows) for rows in partitioned(there, 3)[1:]]
    assert not [name for name in s3.names(there.out) if name.endswith(".json")]
    url = there.commit(receipts)
    assert there.commit(receipts) == url, "a commit may be repeated"
    here.commit([here.write(ROWS)])
    assert s3.content(there.out) == {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()}
    with pytest.raises(torc.Refused, match="complete generation"):
        there.begin()
    nowhere = torc.plan_build("s3://no-such-bucket/pages")
    with pytest.raises(torc.TorcError, match="cannot"):
        nowhere.begin()


def test_a_reservation_says_what_a_build_is_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        torc.plan_build(tmp_path / "out", reservation=tmp_path / "nowhere")
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(torc.Refused, match="not a reservation"):
        torc.build(ROWS, tmp_path / "out", reservation=tmp_path / "letter")
    assert not (tmp_path / "out").exists()
