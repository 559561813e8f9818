"""A client of Torc that shares nothing with it but the published protocol: HTTP/2 and gRPC by
hand, unary calls to random nodes, no routing, no retries. Prints a JSON object for each operation
whose outcome matters, as it was seen.

    foreign.py SEED OPERATIONS NODE...        NODE is host:port
"""

import json
import random
import socket
import struct
import sys
import threading
import time

THREADS = 4
# A key is given up for a fresh one after so many operations: histories are searched.
OPERATIONS_OF_A_KEY = 24
TIMEOUT_S = 3.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, value):
    """A field of a protobuf message: bytes, or a number."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(message):
    """The fields of a protobuf message, by number; of numbers and bytes."""
    found, at = {}, 0

    def number():
        nonlocal at
        shift = value = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = number()
        if tag & 7 == 0:
            found[tag >> 3] = number()
        else:
            length = number()
            found[tag >> 3] = message[at : at + length]
            at += length
    return found


class Refused(Exception):
    """The call ended without a message: its status says why, and is not looked at."""


class Connection:
    """HTTP/2, one request at a time."""

    def __init__(self, node):
        host, port = node.rsplit(":", 1)
        self.node = node
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.socket.settimeout(TIMEOUT_S)
        self.stream, self.may_send, self.input = 1, 65_535, b""
        self.socket.sendall(PREFACE + self.frame(SETTINGS, 0, 0, b""))

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def exactly(self, count):
        while len(self.input) < count:
            more = self.socket.recv(65_536)
            if not more:
                raise ConnectionError("closed")
            self.input += more
        taken, self.input = self.input[:count], self.input[count:]
        return taken

    def receive(self):
        """The next frame; those about the connection are answered here."""
        head = self.exactly(9)
        kind, flags = head[3], head[4]
        stream = struct.unpack(">I", head[5:])[0] & 0x7FFF_FFFF
        payload = self.exactly(int.from_bytes(head[:3], "big"))
        if kind == SETTINGS and not flags & ACK:
            self.socket.sendall(self.frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.socket.sendall(self.frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE and stream == 0:
            self.may_send += struct.unpack(">I", payload)[0]
        elif kind == GOAWAY:
            raise ConnectionError("the node goes away")
        elif kind == DATA and payload:
            self.socket.sendall(self.frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload))))
        return kind, flags, stream, payload

    def call(self, method, message):
        """A unary call; the answer's message."""

        def header(name, value):
            # A literal that is never indexed, not compressed.
            return b"\x10" + bytes([len(name)]) + name + bytes([len(value)]) + value

        headers = b"".join(
            header(name, value)
            for name, value in [
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", b"/torc.v1.Kv/" + method),
                (b":authority", self.node.encode()),
                (b"content-type", b"application/grpc"),
                (b"te", b"trailers"),
                (b"grpc-timeout", b"2S"),
            ]
        )
        body = b"\0" + struct.pack(">I", len(message)) + message
        while self.may_send < len(body):
            self.receive()
        self.may_send -= len(body)
        mine, self.stream = self.stream, self.stream + 2
        self.socket.sendall(
            self.frame(HEADERS, END_HEADERS, mine, headers) + self.frame(DATA, END_STREAM, mine, body)
        )
        answer = b""
        while True:
            kind, flags, stream, payload = self.receive()
            if stream != mine:
                continue
            if kind == RST_STREAM:
                raise Refused
            if kind == DATA:
                answer += payload
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                break
        if len(answer) < 5:
            raise Refused
        return answer[5:]


class Run:
    """What all threads share."""

    def __init__(self, seed, operations, nodes):
        self.seed, self.left, self.nodes = seed, operations, nodes
        self.lock = threading.Lock()
        self.moment = self.value = 0

    def tick(self):
        with self.lock:
            self.moment += 1
            return self.moment

    def next_value(self):
        with self.lock:
            self.value += 1
            return self.value

    def begin(self):
        """The key of the next operation; none at the end."""
        with self.lock:
            self.left -= 1
            return None if self.left < 0 else f"foreign-{self.left // OPERATIONS_OF_A_KEY}"

    def tell(self, **what):
        with self.lock:
            print(json.dumps(what), flush=True)


def client(run, number):
    choose = random.Random(f"{run.seed}/{number}")
    connections, versions = {}, {}
    while (key := run.begin()) is not None:
        node = choose.choice(run.nodes)
        name = field(2, key.encode())
        kind = choose.choices(["get", "put", "put_if_absent", "cas", "erase"], [45, 25, 10, 15, 5])[0]
        seen = versions.get(key)
        if kind == "cas" and seen is None:
            kind = "get"
        value = run.next_value() if kind in ("put", "put_if_absent", "cas") else 0
        expected = seen[0] if kind == "cas" else 0
        stored = name + field(3, struct.pack(">I", value))
        method, message = {
            "get": lambda: (b"Get", name),
            "put": lambda: (b"Put", stored),
            "put_if_absent": lambda: (b"Put", stored + field(6, field(1, 1))),
            "cas": lambda: (b"Put", stored + field(6, field(2, seen[1]))),
            "erase": lambda: (b"Delete", name),
        }[kind]()
        call, outcome, found = run.tick(), "unknown", 0
        try:
            if node not in connections:
                connections[node] = Connection(node)
            answer = fields(connections[node].call(method, message))
            outcome = "done"
            if kind == "get" and answer.get(1):
                found = struct.unpack(">I", answer[2])[0]
                versions[key] = found, answer[3]
        except Refused:
            pass
        except OSError:
            connections.pop(node, None)
        if kind == "get" and outcome == "unknown":
            continue
        run.tell(
            key=key, kind=kind, value=value, expected=expected,
            outcome=outcome, found=found, call=call, ret=run.tick(),
        )


def wait_until_served(node):
    """Until the node answers a get: the cluster may only just have been started."""
    for _ in range(600):
        try:
            return Connection(node).call(b"Get", field(2, b"foreign"))
        except (Refused, OSError):
            time.sleep(0.1)
    raise SystemExit(f"{node} does not serve")


def main():
    seed, operations, *nodes = sys.argv[1:]
    for node in nodes:
        wait_until_served(node)
    run = Run(seed, int(operations), nodes)
    threads = [threading.Thread(target=client, args=(run, number)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
