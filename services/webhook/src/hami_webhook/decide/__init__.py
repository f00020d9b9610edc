"""
What the webhook decides: functions from frozen values to frozen values.

`review` reads the question and writes the answer, `admission` decides, `pod` and `patch` are how a Pod is changed,
`rules` and `vendors` what each vendor changes, `amounts` and `quota` what is refused, `registration` which Pods the API
server asks about. `quota.Quotas` is the one value here that changes: it is what the decision knows of quotas.
May import `hamicommon`. Must never import an adapter, a client library, a clock or a log.
"""
