"""The exceptions of dcs."""

import builtins


class Error(OSError):
    """A transfer that failed, or could not be submitted.

    It is an OSError: ``errno`` is that of the failed system call, else the nearest in meaning (``ENODATA`` if a source
    ended early, ``EBADMSG`` for an unexpected digest, ...). ``completion`` has what had been done by then: bytes,
    digests, times.
    """

    #: Name of the status, as in docs/abi.md: "END_OF_SOURCE", "DIGEST_MISMATCH", "TIMEOUT", ...
    status = "INTERNAL_ERROR"
    #: Stage of the failure: "source", "operator", "destination", "frontend", "queue", ...
    stage = "none"
    #: Place in the chain and name of the operator that failed, if the stage is "operator"; else None.
    operator = None
    #: Advice in one line.
    advice = ""
    #: A dcs.Completion; None if the error was pickled.
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
    """The transfer reached its timeout."""


class Disconnected(Error, ConnectionError):
    """The peer reset the connection, or closed it while it was written to."""


class Cancelled(Error):
    """The transfer was cancelled."""
