"""The object server's application: Swift's own, which hands plain bodies of requests to the backend's engine.

`use = egg:dcs-swift#object` in object-server.conf. Bodies that it can't hand over take Swift's path and are counted.
"""

import errno
import io
import time

from eventlet import wsgi
from eventlet.green import ssl
from swift.common.exceptions import ChunkReadError, ChunkReadTimeout, DiskFileNoSpace
from swift.common.storage_policy import reload_storage_policies
from swift.common.swob import HTTPRequestTimeout
from swift.common.utils import public
from swift.obj import server

from . import diskfile
from .carrier import CLIENT, DISK, Stopped
from .counters import Counters
from .watch import Overdue, Silent, Watch

# A client that is cut off gets its answer when it has sent the rest, or is silent for so long; at the latest after this time.
_LINGER = 1.0
_LINGER_LONGEST = 5.0


def _plain_socket(environ):
    """Returns the client's socket if bytes may be moved without Swift's involvement, else None."""
    body = environ["wsgi.input"]
    if not isinstance(body, wsgi.Input):
        return None
    sock = body.get_socket()
    return None if sock is None or isinstance(sock, ssl.SSLSocket) else sock


class ObjectController(server.ObjectController):
    """Swift's controller, with the bodies of GET and PUT carried."""

    def __init__(self, conf, logger=None):
        super().__init__(conf, logger)
        self.dcs_counters = Counters(
            self.logger,
            conf.get("engine", "dcs"),
            conf.get("recon_cache_path", "/var/cache/swift"),
            float(conf.get("dcs_log_interval", 300)),
        )
        managers = self._diskfile_router.policy_to_manager.values()
        if not diskfile.carry(managers, conf, self.dcs_counters):
            self.logger.warning(
                "dcs: no storage policy has a backend of dcs-swift: nothing will be carried. "
                "Set diskfile_module = egg:dcs-swift#plain.fs in swift.conf"
            )

    @public
    def GET(self, request):
        response = super().GET(request)
        body = response.app_iter
        if isinstance(body, (diskfile.Reader, diskfile.Range)):
            sock = _plain_socket(request.environ)
            if sock is None:
                self.dcs_counters.left("GET", "not a plain socket")
            else:
                body.attach(sock, self.client_timeout)
        elif response.status_int in (200, 206):
            self.dcs_counters.left("GET", "several ranges" if self._is_ours(request) else "another backend")
        return response

    def _is_ours(self, request):
        """Returns whether the object's storage policy has a backend of this package."""
        policy = request.headers.get("X-Backend-Storage-Policy-Index") or 0
        return isinstance(self._diskfile_router[policy], diskfile.PlainManager)

    def _why_not(self, request, obj_input, writer, fsize):
        """Returns why Swift has to receive it; None if the engine can."""
        body = request.environ["wsgi.input"]
        if not isinstance(writer, diskfile.Writer):
            return "another backend"
        if type(body) is not wsgi.Input or _plain_socket(request.environ) is None:
            return "not a plain socket"
        if obj_input is not body or body.chunked_input or fsize is None:
            return "chunked or MIME body"
        if fsize == 0:
            return "empty"
        if fsize < writer.manager.min_size:
            return "smaller than dcs_min_size"
        # Something has already read from it.
        return "body begun by others" if body.position else None

    def _stage_obj_data(self, request, device, obj_input, writer, fsize):
        """Takes the body from the socket, as `ObjectController._stage_obj_data` does."""
        why = self._why_not(request, obj_input, writer, fsize)
        if why is not None:
            self.dcs_counters.left("PUT", why)
            return super()._stage_obj_data(request, device, obj_input, writer, fsize)
        writer.open()
        began = time.time()
        try:
            self._receive(obj_input, writer, fsize)
        except (Stopped, Silent, Overdue) as stopped:
            _close_after_answer(obj_input)
            self._answer(stopped, request, obj_input, fsize)
        except BaseException as error:
            why = "client timeout" if isinstance(error, ChunkReadTimeout) else "interrupted"
            self.dcs_counters.failed("PUT", why)
            _close_after_answer(obj_input)
            raise
        self.dcs_counters.carried("PUT", fsize)
        upload_size, etag = writer.chunks_finished()
        self.logger.transfer_rate("PUT." + device + ".timing", time.time() - began, upload_size)
        return upload_size, etag

    def _receive(self, body, writer, fsize):
        sock = body.get_socket()
        if body.should_send_hundred_continue:
            body.send_hundred_continue_response()
            body.is_hundred_continue_response_sent = True
        prefix = _read_ahead(body, fsize, self.client_timeout)
        watch = Watch(sock, True, self.client_timeout, self.max_upload_time)
        writer.receive(sock, fsize, prefix, watch)
        body.position = fsize

    def _answer(self, stopped, request, body, fsize):
        """Raises the same as Swift's own path."""
        if isinstance(stopped, Silent):
            self.dcs_counters.failed("PUT", "client timeout")
            raise ChunkReadTimeout(self.client_timeout)
        if isinstance(stopped, Overdue):
            self.dcs_counters.failed("PUT", "max_upload_time")
            self.logger.increment("PUT.timeouts")
            raise HTTPRequestTimeout(request=request)
        if stopped.where == CLIENT:
            self.dcs_counters.failed("PUT", "client went away")
            raise ChunkReadError
        self.dcs_counters.failed("PUT", f"{stopped.where} error")
        _let_finish(body.get_socket(), fsize - stopped.body)
        if stopped.where == DISK and stopped.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFileNoSpace()
        raise stopped


def _read_ahead(body, fsize, timeout):
    """Returns the part of the body in the buffer that the request's head was read with."""
    if not isinstance(body.rfile, io.BufferedReader):
        raise TypeError(f"dcs-swift does not know eventlet's {type(body.rfile)}")
    try:
        with ChunkReadTimeout(timeout):
            # Without a buffer it waits for the first bytes, and takes at most a buffer's worth.
            buffered = body.rfile.peek(1)[:fsize]
            return body.rfile.read(len(buffered)) if buffered else b""
    except TimeoutError as error:
        raise Silent from error
    except OSError as error:
        raise Stopped(CLIENT, error) from error


def _close_after_answer(body):
    """Has the connection closed, since the place of the next request on it is unknown. eventlet closes it if a client might not
    have begun to send its body yet; that is the only way to have it close after a whole answer."""
    body.wfile = body.wfile or body.rfile
    body.is_hundred_continue_response_sent = False
    # The 100 must not be sent either.
    body.headers_sent = [1]


def _let_finish(sock, left):
    """Reads and drops data that the client still sends: a client that is reset before it has the answer would not see the reason."""
    timeout = sock.gettimeout()
    end = time.monotonic() + _LINGER_LONGEST
    try:
        while left > 0 and (rest := end - time.monotonic()) > 0:
            sock.settimeout(min(_LINGER, rest))
            got = len(sock.recv(min(left, 1 << 20)))
            if not got:
                break
            left -= got
    except OSError:
        pass
    finally:
        sock.settimeout(timeout)


def app_factory(global_conf, **local_conf):
    """Factory for paste.deploy."""
    conf = {**global_conf, **local_conf}
    if conf.get("swift_dir", "/etc/swift") != "/etc/swift":
        # Swift then reads other hash settings, but keeps the policies of /etc/swift.
        reload_storage_policies()
    return ObjectController(conf)
