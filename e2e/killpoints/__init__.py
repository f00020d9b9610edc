"""
Kill points: each step of each service, at which a process is killed, and what must hold afterwards.

`points` lists the steps. `campaign` lets processes die there while `load` creates and ends Pods, and `leftovers` looks
for what nobody finished. Must never call a service's code, except to change it in its process.
"""
