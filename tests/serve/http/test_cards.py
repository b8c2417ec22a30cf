"""Cards over HTTP: lists, one card with its lineage, samples, and who may see them."""

from __future__ import annotations

from typing import Any

from holdfast.alc.cards.tool import own_library
from tests.serve.http.api_server import ApiServer

NOW = 1_750_000_000.0


async def make(api: ApiServer, card_id: str, pkg: str = "http-cards", **sections: Any) -> None:
    library = own_library(api.door.store)
    if await library.get(card_id) is None:  # the files are those of all tests
        await library.create({"pkg": {"name": pkg}, "card_id": card_id, **sections}, now=NOW)


async def test_cards_are_listed_and_found_by_what_is_in_them(api: ApiServer) -> None:
    await make(api, "http-1", stats={"pass_rate": 0.25})
    await make(api, "http-2", stats={"pass_rate": 0.75})
    params = {"pkg": "http-cards", "order_by": "-stats.pass_rate", "limit": 2}
    rows = (await api.get("/cards", params=params)).json()["data"]
    assert [row["card_id"] for row in rows] == ["http-2", "http-1"]
    where = {"pkg": "http-cards", "where": {"stats": {"pass_rate": {"lt": 0.5}}}}
    assert [row["card_id"] for row in (await api.post("/cards/find", where)).json()["data"]] == ["http-1"]
    refused = await api.post("/cards/find", {"where": {"stats": {"n": {"in": 1}}}})
    assert (refused.status_code, "takes an array" in refused.json()["detail"]) == (400, True)
    assert (await api.get("/cards", params={"limit": 0})).status_code == 400
    assert (await api.get("/cards", params={"offset": -1})).status_code == 400


async def test_a_card_is_shown_with_its_aliases_and_lineage(api: ApiServer) -> None:
    await make(api, "http-root", pkg="http-kin")
    await make(api, "http-child", pkg="http-kin", metadata={"prior_card_id": "http-root", "prior_relation": "tuned"})
    library = own_library(api.door.store)
    await library.alias_set("http-best", "http-child", now=NOW)
    shown = (await api.get("/cards/http-child")).json()
    assert shown["card"]["card_id"] == "http-child"
    assert [alias["name"] for alias in shown["aliases"]] == ["http-best"]
    assert {node["card_id"]: node["depth"] for node in shown["lineage"]["nodes"]} == {"http-child": 0, "http-root": -1}
    down = (await api.get("/cards/http-root/lineage", params={"direction": "down"})).json()
    assert [node["card_id"] for node in down["nodes"]] == ["http-root", "http-child"]
    names = [alias["name"] for alias in (await api.get("/cards/aliases")).json()["data"]]
    assert "http-best" in names


async def test_samples_are_given_by_the_page_and_an_unknown_card_is_not_found(api: ApiServer) -> None:
    await make(api, "http-samples")
    library = own_library(api.door.store)
    if not await library.read_samples("http-samples"):
        await library.write_samples("http-samples", [{"case": number} for number in range(5)])
    rows = (await api.get("/cards/http-samples/samples", params={"offset": 3})).json()["data"]
    assert rows == [{"case": 3}, {"case": 4}]
    for path in ("/cards/unknown", "/cards/unknown/samples", "/cards/unknown/lineage"):
        reply = await api.get(path)
        assert (reply.status_code, reply.json()["type"]) == (404, "urn:holdfast:error:card_not_found")
    assert (await api.get("/cards/..%2Fx")).status_code in (400, 404)


async def test_cards_need_a_token_that_reads_strategies_and_sees_all_sessions(api: ApiServer) -> None:
    async with api.as_holder_of(None) as nobody:
        assert (await nobody.get("/cards")).status_code == 401
    wrong, _ = await api.door.tokens.create("one", ["sessions:read"])
    some, _ = await api.door.tokens.create("two", ["strategies:read"], id_prefix="mine-")
    right, _ = await api.door.tokens.create("three", ["strategies:read"])
    for token, status in ((wrong, 403), (some, 403), (right, 200)):
        async with api.as_holder_of(token) as client:
            assert (await client.get("/cards")).status_code == status


async def test_cards_are_not_written_as_state_items(api: ApiServer) -> None:
    reply = await api.client.put("/state/holdfast.cards/c.x", json={"value": 1})
    assert (reply.status_code, "such as cards" in reply.json()["detail"]) == (403, True)
    assert (await api.client.delete("/state/holdfast.cards/c.x")).status_code == 403
