"""Refuses TLS sockets and transports: the engine would bypass the encryption, and send bytes in the clear."""

import io
import socket
import sys

# Attributes of classes of TLS connections: ssl, gevent, eventlet, pyOpenSSL, urllib3.
_MARKS = ("do_handshake", "selected_alpn_protocol", "getpeercert")

# Attributes in which wrappers keep the inner object, and the deepest nesting that occurs.
_INNER = ("raw", "buffer", "fp", "_sock", "_socket", "connection", "socket")
_DEPTH = 6


def _wrapped(thing):
    """Returns the object and those that it wraps: a makefile() is a buffer around a SocketIO around a socket."""
    found = [thing]
    for each in found:
        # Plain files and sockets wrap nothing.
        if type(each) in (io.FileIO, socket.socket) or len(found) > _DEPTH:
            continue
        for name in _INNER:
            try:
                inner = getattr(each, name, None)
            except Exception:
                continue
            if inner is not None and not callable(inner) and not any(inner is other for other in found):
                found.append(inner)
    return found


def _refuse(what):
    raise TypeError(f"{what} is a TLS socket: dcs would bypass its encryption")


def _is_encrypted(transport):
    """Returns True if an asyncio transport's bytes are not those of its socket."""
    if any(transport.get_extra_info(name) is not None for name in ("ssl_object", "sslcontext")):
        return True
    # The transport below TLS does not say so itself.
    sslproto = sys.modules.get("asyncio.sslproto")
    protocol = transport.get_protocol() if hasattr(transport, "get_protocol") else None
    return sslproto is not None and isinstance(protocol, sslproto.SSLProtocol)


def _transport_of(number):
    """Returns the transport that asyncio's running loop has for a descriptor."""
    events = sys.modules.get("asyncio.events")
    loop = events._get_running_loop() if events else None
    transports = getattr(loop, "_transports", None)
    return transports.get(number) if transports is not None else None


def check_number(number, what):
    """Refuses a descriptor over which a transport of the running loop speaks TLS."""
    transport = _transport_of(number)
    if transport is not None and _is_encrypted(transport):
        _refuse(what)


def check(thing, what):
    """Refuses an object with fileno() that is a TLS socket, or stands for one, or may do so."""
    for each in _wrapped(thing):
        kind = type(each)
        if any(hasattr(kind, mark) for mark in _MARKS):
            _refuse(what)
        # The socket that a transport hands out looks the same with TLS and without.
        if kind.__name__ in ("TransportSocket", "PseudoSocket"):
            transport = _transport_of(each.fileno())
            if transport is None:
                raise TypeError(f"{what} is the socket of a transport, which may speak TLS over it: pass the transport")
            if _is_encrypted(transport):
                _refuse(what)


def transport_number(thing, what):
    """Returns the descriptor of an asyncio transport or StreamWriter without TLS; None if it is neither."""
    transport = getattr(thing, "transport", thing)
    if not hasattr(transport, "get_extra_info") or not hasattr(transport, "get_write_buffer_size"):
        return None
    if _is_encrypted(transport):
        _refuse(what)
    waiting = transport.get_write_buffer_size()
    if waiting:
        line = f"{what} has {waiting} bytes that it has not written yet: transport.set_write_buffer_limits(0), and await drain()"
        raise ValueError(line)
    sock = transport.get_extra_info("socket")
    return None if sock is None else sock.fileno()
