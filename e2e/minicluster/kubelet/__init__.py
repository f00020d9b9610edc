"""
The kubelet of one Node: device plugins, Pods, containers as processes.

Arrows: `main` → `pods` → `devices` | `status` → `runtime` → `podspec`. May import the modules beside this package
(`client`, `quantity`, `podrequests`, `pids`); must never import another component.
"""
