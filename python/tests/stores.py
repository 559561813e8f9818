"""An object store for tests."""

from __future__ import annotations

import logging
import os
import uuid
from typing import Any

import pytest


class S3:
    """A server of S3 in this process, and the environment of its clients."""

    def __init__(self) -> None:
        moto = pytest.importorskip("moto.server", reason="pip install './python[engines]'")
        boto3 = pytest.importorskip("boto3")
        logging.getLogger("werkzeug").disabled = True
        self.server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
        os.environ.update(keys, AWS_DEFAULT_REGION="us-east-1", AWS_ENDPOINT=endpoint, AWS_ALLOW_HTTP="true")
        self.client: Any = boto3.client("s3", endpoint_url=endpoint)
        self.client.create_bucket(Bucket="torc")

    def url(self) -> str:
        """A location that no other test uses."""
        return f"s3://torc/{uuid.uuid4().hex}"

    def names(self, url: str) -> list[str]:
        """The keys of the objects at a location."""
        prefix = url.removeprefix("s3://torc/") + "/"
        listed = self.client.list_objects_v2(Bucket="torc", Prefix=prefix)
        return [each["Key"] for each in listed.get("Contents", [])]

    def content(self, url: str) -> dict[str, bytes]:
        keys = self.names(url)
        return {key.rsplit("/", 1)[1]: self.client.get_object(Bucket="torc", Key=key)["Body"].read() for key in keys}

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket="torc", Key=key)
