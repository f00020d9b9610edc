"""
The two clusters that the tests run on, and the programs that a test runs against them.

Arrows: `extenders` | `plugins` | `webhooks` → `clusters` → `shell` → `objects`. Must never hold a promise: tests do.
"""
