"""
kube-scheduler: queue, Node fit, HTTP extenders, binding, leader election.

Arrows: `main` → `reports` | `cache` | `lease` | `extender` → `queue` | `config` | `http` → `fit`. May import the
modules beside this package; must never import another component.
"""
