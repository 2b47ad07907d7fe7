"""Nothing is sent past TLS: whatever stands for a TLS connection is refused."""

import asyncio
import datetime
import socket
import socketserver
import ssl

import dcs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from conftest import data

SECRET = b"top secret\n" * 100


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    """Of a server and of its client."""
    folder = tmp_path_factory.mktemp("certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    (folder / "cert").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    none = serialization.NoEncryption()
    (folder / "key").write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none))
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=folder / "cert")
    server.load_cert_chain(folder / "cert", folder / "key")
    client.check_hostname = False
    return server, client


def test_files_and_wrappers_of_tls_sockets(tcp, make, contexts):
    file = make(SECRET)
    with contexts[1].wrap_socket(tcp[0], do_handshake_on_connect=False) as tls:
        for end in (
            tls,
            tls.makefile("wb"),
            tls.makefile("wb", buffering=0),
            tls.makefile("w"),
            socketserver._SocketWriter(tls),
        ):
            with pytest.raises(TypeError, match="sock is a TLS socket"):
                dcs.sendfile(end, file)
            with pytest.raises(TypeError, match="destination is a TLS socket"):
                dcs.transfer(file, end)
        with pytest.raises(TypeError, match="sock is a TLS socket"):
            dcs.recvfile(tls.makefile("rb"), file, count=1)
        tcp[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            tcp[1].recv(1)


class Connection:
    """As pyOpenSSL's: it is no ssl.SSLSocket, and its fileno() is that of the socket below."""

    def __init__(self, sock):
        self._socket = sock

    def do_handshake(self):
        raise NotImplementedError

    def __getattr__(self, name):
        return getattr(self._socket, name)


def test_connections_of_other_libraries(tcp, make):
    for end in (Connection(tcp[0]), Around(Connection(tcp[0]))):
        with pytest.raises(TypeError, match="sock is a TLS socket"):
            dcs.sendfile(end, make(SECRET))


class Around:
    """As urllib3's around pyOpenSSL's."""

    def __init__(self, connection):
        self.connection = connection

    def fileno(self):
        return self.connection.fileno()


def test_plain_wrappers_are_taken(tcp, make):
    file = make(SECRET)
    for end in (tcp[0].makefile("wb"), tcp[0].makefile("wb", buffering=0), socketserver._SocketWriter(tcp[0])):
        assert dcs.sendfile(end, file).bytes_out == len(SECRET)
        assert tcp[1].recv(len(SECRET), socket.MSG_WAITALL) == SECRET


def serve(handler, contexts=None, upgrade=False):
    """Runs the handler in a server; what its client gets to the end."""

    async def main():
        failed = []

        async def handle(reader, writer):
            try:
                if upgrade:
                    await writer.start_tls(contexts[0])
                await handler(reader, writer)
            except BaseException as error:
                failed.append(error)
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=None if upgrade or not contexts else contexts[0])
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=None if upgrade or not contexts else contexts[1])
        if upgrade:
            await writer.start_tls(contexts[1], server_hostname="localhost")
        got = await reader.read()
        writer.close()
        server.close()
        if failed:
            raise failed[0]
        return got

    return asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("upgrade", [False, True])
def test_asyncio_with_tls(make, contexts, upgrade):
    file = make(SECRET)

    async def handler(reader, writer):
        sock = writer.get_extra_info("socket")
        for end in (sock, sock.fileno(), sock._sock, writer, writer.transport):
            with pytest.raises(TypeError, match="destination is a TLS socket"):
                await dcs.transfer(file, end, ["md5"])
        with pytest.raises(TypeError, match="sock is the socket of a transport.*pass the transport"):
            await asyncio.to_thread(dcs.sendfile, sock, file)
        writer.write(b"encrypted")
        await writer.drain()

    assert serve(handler, contexts, upgrade) == b"encrypted"


def test_asyncio_without_tls(make):
    content = data(1 << 20)
    file = make(content)

    async def handler(reader, writer):
        sock = writer.get_extra_info("socket")
        for end in (sock, sock.fileno(), writer, writer.transport):
            assert (await dcs.transfer(file, end, ["md5"])).bytes_out == len(content)

    assert serve(handler) == content * 4


def test_what_a_transport_has_not_written_is_not_overtaken(make):
    content = data(1 << 20)
    file = make(SECRET)

    async def handler(reader, writer):
        writer.transport.set_write_buffer_limits(0)
        while not writer.transport.get_write_buffer_size():
            writer.write(content)
        with pytest.raises(ValueError, match="has not written yet"):
            dcs.transfer(file, writer)
        await writer.drain()
        assert (await dcs.transfer(file, writer)).bytes_out == len(SECRET)

    assert serve(handler).endswith(content[-100:] + SECRET)
