"""Object bodies of stock OpenStack Swift on the dcs engine.

| module | contents |
|---|---|
| `server` | the object server's application (`use = egg:dcs-swift#object`): decides which bodies of requests to carry |
| `diskfile` | the backends of storage policies (`diskfile_module = egg:dcs-swift#plain.fs`): readers and writers |
| `carrier` | moves the bytes: by the engine, or by hashlib's loops for comparison |
| `watch` | detects clients that are silent for too long |
| `stored` | forms of bodies on the disk: plain, aes256-ctr, gzip |
| `counters` | counts of bodies that were carried, and that were left to Swift |

It doesn't touch erasure coding, the account and container servers, the proxy, or replication; these stay Swift's.
"""
