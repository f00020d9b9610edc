"""
The API server: Kubernetes objects over HTTP, kept in memory and in a journal.

Arrows: `main` → `serve` → `admission` → `store` | `objects` → `api`. May import the modules beside this package
(`selection`, `quantity`, `podrequests`); must never import another component.
"""
