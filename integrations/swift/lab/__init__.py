"""The integration's laboratory: a whole Swift on this machine, Swift's own tests, tests of failures, benchmark.

| module | contents |
|---|---|
| `cluster` | proxy, account, container and object server in separate processes, which end with their creator |
| `serve` | one of Swift's servers with the policies of its own folder |
| `suites` | Swift's own unit and functional tests, on the engine |
| `stock_tests_plugin` | puts this package's classes where Swift's unit tests look for Swift's |
| `load` | the benchmark's clients |
| `bench` | compares stock Swift, the same hooks with hashlib, and the engine |
"""
