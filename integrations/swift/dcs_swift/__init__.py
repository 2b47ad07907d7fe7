"""Object bodies of stock OpenStack Swift on the dcs engine.

| module | what it holds |
|---|---|
| `server` | the object server's application (`use = egg:dcs-swift#object`): what of a request may be carried |
| `diskfile` | the backends of storage policies (`diskfile_module = egg:dcs-swift#plain.fs`): readers and writers |
| `carrier` | who moves the bytes: the engine, or hashlib's loops to compare with |
| `watch` | when a client has been silent for too long |
| `stored` | how bodies lie on the disk: plain, aes256-ctr, gzip |
| `counters` | what was carried and what was left to Swift |

It doesn't touch erasure coding, the account and container servers, the proxy, or replication; these stay Swift's own.
"""
