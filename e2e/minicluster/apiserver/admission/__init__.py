"""
Whether a valid write may happen: built-in admission plugins, mutating webhooks, quotas.

May import `store` and `api`. Must never write an object; `serve` does that after admission.
"""
