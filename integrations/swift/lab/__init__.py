"""Where the integration is tried: a whole Swift on this machine, Swift's own tests, tests of what can go wrong, benchmark.

| module | what it holds |
|---|---|
| `cluster` | proxy, account, container and object server in processes of their own, torn down with whoever made them |
| `serve` | one of Swift's servers with the policies of its own folder |
| `suites` | Swift's own unit and functional tests, on the engine |
| `stock_tests_plugin` | puts this package's classes where Swift's unit tests look for Swift's |
| `load` | the benchmark's clients |
| `bench` | stock Swift, the same hooks with hashlib, and the engine, side by side |
"""
