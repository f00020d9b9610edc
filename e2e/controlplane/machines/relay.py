"""
Relay connections from this machine into the cluster: `python -m controlplane.machines.relay HOST:PORT`.

Runs in the control machine's network. Its standard input is a listening socket of this machine's network. It joins each
accepted connection to a new one to HOST:PORT. Must never interpret the data.
"""

import asyncio
import socket
import sys

BUFFER_BYTES = 1 << 18


async def serve(listening: socket.socket, host: str, port: int) -> None:
    """Relay every connection to *listening*, for ever."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port, limit=BUFFER_BYTES)
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            writer.close()
            far_writer.close()

    server = await asyncio.start_server(relay, sock=listening, limit=BUFFER_BYTES)
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy all data and the end. A broken connection ends both directions."""
    try:
        while content := await reader.read(BUFFER_BYTES):
            writer.write(content)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.transport.abort()


if __name__ == "__main__":
    _host, _, _port = sys.argv[1].rpartition(":")
    asyncio.run(serve(socket.socket(fileno=0), _host, int(_port)))
