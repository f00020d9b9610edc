"""
Programs of others that run beside the services: which versions, how they start, the page of what works.

`programs` has the pins, `prometheus` starts Prometheus and Alertmanager on a cluster, `page` writes docs/neighbours.md.
Must never change how a cluster of the harness works.
"""
