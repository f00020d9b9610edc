"""
A real Kubernetes on one machine without a container engine: the upstream programs, built here and run in namespaces.

    python -m controlplane up          # control machine, two nodes; kubeconfig in the folder
    python -m controlplane down        # nothing is left

Arrows: `cluster` → `parts` | `api` | `record` | `prerequisites` → `images` | `pki` → `machines` | `programs`. `cluster`
puts everything together, `parts` says what each program is told. May import `testbed` and the API client of
`minicluster`. Must never know the project's services: the chart deploys them, as on any cluster.
"""
