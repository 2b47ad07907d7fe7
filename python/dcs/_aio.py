"""Implements ``await transfer``: waits for its descriptor in the running loop."""

import asyncio
import os


def _ring(done):
    if not done.done():
        done.set_result(None)


async def _ended(transfer):
    if transfer.done():
        return
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    # A loop has one reader for each descriptor, and several tasks may await one transfer.
    fd = os.dup(transfer.fileno())
    try:
        loop.add_reader(fd, _ring, done)
        try:
            await done
        finally:
            loop.remove_reader(fd)
    finally:
        os.close(fd)


async def wait(transfer):
    try:
        await _ended(transfer)
    except asyncio.CancelledError:
        transfer.cancel()
        # The engine releases socket, file and memory first: the caller may use them next.
        await _ended(transfer)
        raise
    return transfer.result()
