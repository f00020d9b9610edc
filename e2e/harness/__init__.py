"""
A cluster with the four services on it, as the end-to-end tests and the demo use it.

`cluster` says what every cluster can do, and `clusters` has the two. On top: Pods (`manifests`, `load`, `residents`),
what must hold at every version (`history`, `recording`) and at rest (`invariants`), a namespace for each test
(`isolation`), the order of the tests (`order`), the commands of the documentation (`documents`), the demo's `screen`.
May import `controlplane`, `minicluster`, `testbed` and `hamicommon`; must never import a service, which a cluster
starts as a process.
"""
