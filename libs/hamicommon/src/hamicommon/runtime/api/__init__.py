"""
Talk to the API server.

`kube` is the client, and the only module with kubernetes and aiohttp. `reflector` keeps a copy of a collection by
`watch_stream`, and `event_queue` writes Events. `reviews` asks who owns a token. `api_errors` says why a request
failed, `api_metrics` counts them, and `packages` keeps the client's import small.
`http_proxy` says which proxy leads to it. Must never decide anything, or import another room.
"""
