"""
The simplest extender: it takes the first Node of the list, and writes one Binding.

A separate process for comparison with the scheduler: same language, same HTTP server, same Binding with the Pod's uid
and two annotations. Keeps no state.
"""

import argparse

from aiohttp import web

from minicluster.client import ApiError, Client


def main() -> None:
    """Serve `/filter` and `/bind` until ended."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kubeconfig", required=True)
    arguments.add_argument("--port", type=int, required=True)
    found = arguments.parse_args()
    web.run_app(_application(found.kubeconfig), host="127.0.0.1", port=found.port, access_log=None, print=None)


async def _application(kubeconfig: str) -> web.Application:
    client = Client.from_kubeconfig(kubeconfig, "trivial-extender")

    async def choose(request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response({"NodeNames": asked["NodeNames"][:1]})

    async def bind(request: web.Request) -> web.Response:
        asked = await request.json()
        name, namespace, node = asked["PodName"], asked["PodNamespace"], asked["Node"]
        annotations = {"scale.example/node": node, "scale.example/device": "GPU-0"}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": asked["PodUID"], "annotations": annotations},
            "target": {"kind": "Node", "name": node},
        }
        try:
            await client.create(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", binding)
        except ApiError as error:
            return web.json_response({"Error": str(error)})
        return web.json_response({"Error": ""})

    async def close(_app: web.Application) -> None:
        await client.close()

    app = web.Application()
    app.router.add_post("/filter", choose)
    app.router.add_post("/bind", bind)
    app.on_cleanup.append(close)
    return app


if __name__ == "__main__":
    main()
