"""The exceptions of dcs."""

import builtins


class Error(OSError):
    """A transfer that failed, or could not be submitted.

    It is an OSError: ``errno`` is that of the system call behind it, else the nearest in meaning (``ENODATA`` where a
    source ended early, ``EBADMSG`` for a digest that is not the one expected, ...). What had been done by then is in
    ``completion``: bytes, digests, times.
    """

    #: Name of the status, as in docs/abi.md: "END_OF_SOURCE", "DIGEST_MISMATCH", "TIMEOUT", ...
    status = "INTERNAL_ERROR"
    #: Where it went wrong: "source", "operator", "destination", "frontend", "queue", ...
    stage = "none"
    #: Place in the chain and name of the operator that failed, where the stage is "operator"; else None.
    operator = None
    #: What can be done about it, in one line.
    advice = ""
    #: A dcs.Completion; None where the error was pickled.
    completion = None

    @property
    def bytes_in(self):
        """Bytes that had come from prefix and source."""
        return self.completion.bytes_in if self.completion else 0

    @property
    def bytes_out(self):
        """Bytes that the destination had taken, in order, from the first one."""
        return self.completion.bytes_out if self.completion else 0

    def __str__(self):
        return self.strerror or super().__str__()

    def __reduce__(self):
        # A completion belongs to its process.
        return type(self), self.args, {**self.__dict__, "completion": None}


class Timeout(Error, builtins.TimeoutError):
    """The transfer's timeout is over."""


class Disconnected(Error, ConnectionError):
    """The peer reset the connection, or closed it while it was written to."""


class Cancelled(Error):
    """The transfer was cancelled."""
