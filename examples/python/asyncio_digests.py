"""md5sum(1) of many files at once, in one thread: transfers that are awaited.

    python3 asyncio_digests.py FILE...
"""

import asyncio
import os
import sys

import dcs


async def main(names):
    nowhere = os.open("/dev/null", os.O_WRONLY)
    # As many as run at a time: more would only wait in the engine, each with its descriptors.
    turns = asyncio.Semaphore(64)

    async def digest(name):
        async with turns:
            with open(name, "rb") as file:
                done = await dcs.transfer(file, nowhere, ["md5"])
        return f"{done.hexdigest('md5')}  {name}"

    for line in await asyncio.gather(*map(digest, names), return_exceptions=True):
        print(line)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
