"""
What the webhook decides: functions from frozen values to frozen values.

`review` reads the request and writes the answer, `admission` decides, `pod` and `patch` change a Pod. `rules` and
`vendors` have each vendor's changes, `amounts` and `quota` the rejections. `registration` decides which resources the
webhook's conditions leave out. One value changes: `quota.Quotas`, the quotas and grants that watches deliver.
May import `hamicommon`. Must never import an adapter, a client library, a clock or a log.
"""
