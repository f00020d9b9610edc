"""
A cluster with the four services on it, as the end-to-end tests and the demo use it.

`cluster` says what every cluster can do; `embedded` and `real` are the two. On top: Pods (`manifests`, `load`,
`residents`), the promises that always hold (`invariants`), the order of the tests (`order`), commands of the
documentation (`documented`), the demo's `screen`. May import `controlplane`, `minicluster`, `testbed` and
`hamicommon`; must never import a service, which a cluster starts as a process.
"""
