"""
Programs of others see the same with the library as without, except where a limit shows.
"""

import pytest
from clients.catalogue import CLIENTS, LIMIT_MIB, REFUSED, Client
from clients.page import Row
from clients.run import run
from containers import Container

SIZE = ", MiB"
"""The end of a step's name whose value is the size of a device."""


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: f"{client.name} {client.version}")
def test_client_sees_its_limit_and_nothing_else(
    client: Client, container: Container, rows: list[Row], request: pytest.FixtureRequest
) -> None:
    """
    The total is the limit, an allocation beyond it is refused as the driver would, and all other results are equal.
    """
    if not client.is_small and request.config.getoption("--write", None) is None:
        pytest.skip("its packages are large: `tox -e clients` runs it")
    bare = run(client, container, is_limited=False)

    limited = run(client, container, is_limited=True)

    assert bare.alike() == limited.alike()
    for step, value in limited.limited().items():
        assert (LIMIT_MIB if step.endswith(SIZE) else REFUSED) == value, step
        assert value != bare.limited()[step], step
    rows.append(Row(client, bare, limited))
