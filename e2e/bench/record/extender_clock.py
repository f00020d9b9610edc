"""
Measure an extender's calls for its client, from packets on the loopback.

Owns a packet socket and the thread that reads it. It does not delay calls. It measures the time from the first bytes of
a request to the first bytes of its answer, by the kernel's time stamps. Needs CAP_NET_RAW. Understands IPv4, and
HTTP/1.1 without pipelining, which kube-scheduler uses.
Source: https://docs.kernel.org/networking/filter.html (the filter), packet(7), socket(7)
"""

import ctypes
import re
import socket
import struct
import threading
from collections import defaultdict
from typing import Self

_ETH_P_IP = 0x0800
_SO_ATTACH_FILTER = 26
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 16 * 1024 * 1024
_SNAP_BYTES = 128
"""Enough for the IPv4 header, the TCP header and the request line."""
_REQUEST_LINE = re.compile(rb"[A-Z]+ /(\w+)")
_TIMESPEC = struct.Struct("@qq")
_POLL_SECONDS = 0.1


class ExtenderClock:
    """The calls to one port of 127.0.0.1 during a block."""

    def __init__(self, port: int) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        """By verb, the first part of the path. Complete after the block."""
        self._port = port
        self._open: dict[int, tuple[str, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> Self:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        program, self._kept = _packets_of(self._port)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        self._socket.settimeout(_POLL_SECONDS)
        self._socket.bind(("lo", _ETH_P_IP))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while True:
            try:
                packet, stamps, _, _ = self._socket.recvmsg(_SNAP_BYTES, socket.CMSG_SPACE(_TIMESPEC.size))
            except TimeoutError:
                if self._ended.is_set():
                    return
                continue
            seconds, nanoseconds = _TIMESPEC.unpack(stamps[0][2])
            self._hear(packet, seconds + nanoseconds / 1e9)

    def _hear(self, packet: bytes, at: float) -> None:
        """Process one packet: the first data of a request starts a call, the first data of the answer ends it."""
        tcp = (packet[0] & 0x0F) * 4
        source, destination = struct.unpack_from("!HH", packet, tcp)
        data = tcp + (packet[tcp + 12] >> 4) * 4
        if int.from_bytes(packet[2:4], "big") <= data:
            return
        if destination == self._port:
            line = _REQUEST_LINE.match(packet[data:])
            if line and source not in self._open:
                self._open[source] = (line[1].decode(), at)
        elif destination in self._open:
            verb, began = self._open.pop(destination)
            self.seconds[verb].append(at - began)


def _packets_of(port: int) -> tuple[bytes, ctypes.Array[ctypes.c_char]]:
    """Return a filter for TCP of *port* in both directions, each packet once, and the memory it points to."""
    load_byte, load_half, load_word, if_equal, answer = 0x30, 0x28, 0x20, 0x15, 0x06
    packet_type, outgoing = 0xFFFFF004, 4
    rows = [
        (load_word, 0, 0, packet_type),
        (if_equal, 7, 0, outgoing),
        (load_byte, 0, 0, 9),
        (if_equal, 0, 5, socket.IPPROTO_TCP),
        (load_half, 0, 0, 20),
        (if_equal, 2, 0, port),
        (load_half, 0, 0, 22),
        (if_equal, 0, 1, port),
        (answer, 0, 0, _SNAP_BYTES),
        (answer, 0, 0, 0),
    ]
    memory = ctypes.create_string_buffer(b"".join(struct.pack("@HBBI", *row) for row in rows))
    return struct.pack("@HP", len(rows), ctypes.addressof(memory)), memory
