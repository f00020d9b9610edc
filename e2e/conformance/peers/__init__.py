"""
The two clusters, and the programs that the tests run against them.

Arrows: `extenders` | `plugins` | `webhooks` → `clusters` → `shell` → `objects`. Must never assert a behaviour.
"""
