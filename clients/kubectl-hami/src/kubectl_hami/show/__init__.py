"""
Show answers: as tables, JSON or YAML.

May import `answer` and `values`. Must never read a cluster or conclude anything. What tenants wrote is shown without
control characters.
"""
