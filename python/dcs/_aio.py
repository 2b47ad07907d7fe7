"""What ``await transfer`` does: waits for its descriptor in the running loop."""

import asyncio


def _ring(done):
    if not done.done():
        done.set_result(None)


async def _readable(fd):
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.add_reader(fd, _ring, done)
    try:
        await done
    finally:
        loop.remove_reader(fd)


async def wait(transfer):
    try:
        if not transfer.done():
            await _readable(transfer.fileno())
    except asyncio.CancelledError:
        transfer.cancel()
        # The engine lets go of socket, file and memory first: whoever cancels may want them next.
        if not transfer.done():
            await _readable(transfer.fileno())
        raise
    return transfer.result()
