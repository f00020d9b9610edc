"""
Which kind of Node a share gets while DeviceClasses map its resource, on a real kube-scheduler.

    python -m dra                     # writes the tables of docs/dra-nodes.md from `table`
    pytest e2e/dra_tests --cluster real

Arrows: `page` → `table`; `stage` → `extender` | `objects` → `table`. `table` is what is expected, `stage` is where it
is measured.
"""
