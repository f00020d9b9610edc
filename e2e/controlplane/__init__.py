"""
A real Kubernetes on one machine without a container engine: the upstream programs, built here and run in namespaces.

    python -m controlplane up          # control machine, two nodes; kubeconfig in the folder
    python -m controlplane down        # nothing is left

Arrows: `cluster` → `parts` | `administrator` | `prerequisites` → `images` | `guest` | `nvidia` → `machines` |
`programs` | `pki` | `record`. `cluster` puts everything together, `parts` has the arguments of each program. May import
`testbed` and the API client of `minicluster`. Must never know the project's services: the chart deploys them, as on any
cluster.
"""
