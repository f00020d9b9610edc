"""
What the device plugin decides: functions from frozen values to frozen values.

What the Node has: `hardware`, and `cards` for the health of each device. What it offers: `inventory`, `mig`,
`replicas`, `announcement`, `registration`. What a container gets: `mode` says how its Pod is found, `pods`, `owner` and
`pending` find its shares, `allocation` and `cdi` turn them into a grant, and `confirmation` marks the Pod.
May import `hamicommon`. Must never import an adapter, a client library, a clock or a log.
"""
