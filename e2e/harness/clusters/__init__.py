"""
The two clusters, and what only one of them needs.

`embedded` starts the services as processes, with `service_pods`; `real` installs the chart, with `release`. May import
the modules of `harness`. Must never know a test or a document.
"""
