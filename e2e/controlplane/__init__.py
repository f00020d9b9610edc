"""
A real Kubernetes on one machine without a container engine: the upstream programs, built here and run in namespaces.

    python -m controlplane up          # control machine, two nodes; kubeconfig in the folder
    python -m controlplane down        # nothing is left

`build` makes the programs, `machine` and `boot` the machines they run in, `parts` says what each program is told,
`network` joins the machines, `node` is what a test does to one, `cluster` puts it together. Nothing here knows the
project's services: they come by the chart, as anywhere.
"""
