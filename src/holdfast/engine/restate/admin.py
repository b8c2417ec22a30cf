"""The engine's admin API: registering a fleet, seeing which of its nudges are in trouble, and moving those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine.dispatch import DispatchError

if TYPE_CHECKING:
    import httpx2

REPLY_S = 20.0
"""Seconds that the engine has for a reply. To register a fleet, it asks that fleet itself."""

_TROUBLED = """
select id, target_service_key, status, pinned_deployment_id, retry_count, last_failure
  from sys_invocation
 where target_service_name in ('{service}', '{service}-sweep') and target_handler_name in ('drive', 'sweep')
   and (status in ('backing-off', 'paused')
        or (status in ('running', 'suspended') and pinned_deployment_id is not null
            and pinned_deployment_id <> '{latest}'))
 order by modified_at limit {limit}
"""
_COUNTS = """
select status, count(*) as number from sys_invocation
 where target_service_name in ('{service}', '{service}-sweep') and status <> 'completed' group by status
"""


class TroubledNudge(msgspec.Struct, frozen=True):
    """A nudge that does not get through, or is bound to workers of another version."""

    id: str
    session_id: str
    status: str
    deployment: str | None
    """Where the workers are that it is bound to."""
    is_latest: bool
    tries: int
    why: str


class DispatchReport(msgspec.Struct, frozen=True):
    """How the engine gets on with a fleet."""

    service: str
    deployment: str | None
    """Where new nudges are brought; None if nobody has registered."""
    others: list[str]
    """Where workers of other versions are, or were."""
    nudges: dict[str, int]
    """How many are under way, by their status; those that are over are not counted."""
    troubled: list[TroubledNudge]


class AdminClient:
    """Talks to the admin API of one engine."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    async def register(self, uri: str) -> None:
        """Make a fleet known to the engine: new nudges are brought there from now on, unless it was known before.

        So workers of an older version that are started again get none of the nudges that are for the latest ones.
        """
        wanted = {"uri": uri, "use_http_11": True}
        if await self._call("POST", "/deployments", json=wanted, missing=(409,)) is None:
            await self._call("POST", "/deployments", json={**wanted, "force": True})

    async def report(self, service: str, limit: int = 1_000) -> DispatchReport:
        """How the engine gets on with a fleet."""
        deployments = await self._deployments(service)
        latest_id, latest = await self._latest(service, deployments)
        counts = await self._query(_COUNTS.format(service=service))
        found = await self._query(_TROUBLED.format(service=service, latest=latest_id or "", limit=limit))
        troubled = [
            TroubledNudge(
                id=row["id"],
                session_id=row.get("target_service_key") or "",
                status=row["status"],
                deployment=deployments.get(row.get("pinned_deployment_id") or ""),
                is_latest=row.get("pinned_deployment_id") in (None, latest_id),
                tries=row.get("retry_count") or 0,
                why=(row.get("last_failure") or "").partition("\n")[0],
            )
            for row in found
        ]
        return DispatchReport(
            service=service,
            deployment=latest,
            others=sorted({uri for name, uri in deployments.items() if name != latest_id}),
            nudges={row["status"]: row["number"] for row in counts},
            troubled=troubled,
        )

    async def move(self, nudge: TroubledNudge) -> None:
        """Let a nudge be brought to the latest workers, from the beginning of its present attempt."""
        if nudge.status != "paused":
            await self._call("PATCH", f"/invocations/{nudge.id}/pause", missing=(404, 409))
        await self._call("PATCH", f"/invocations/{nudge.id}/resume?deployment=latest", missing=(404, 409))

    async def _deployments(self, service: str) -> dict[str, str]:
        """Where the workers of a fleet are, or were, by the id of their registration."""
        reply = await self._call("GET", "/deployments")
        found: dict[str, str] = {}
        for each in reply["deployments"]:
            if any(one["name"] == service for one in each["services"]):
                found[each["id"]] = each["uri"]
        return found

    async def _latest(self, service: str, deployments: dict[str, str]) -> tuple[str | None, str | None]:
        if not deployments:
            return None, None
        reply = await self._call("GET", f"/services/{service}")
        found = reply["deployment_id"]
        return found, deployments.get(found)

    async def _query(self, statement: str) -> list[dict[str, Any]]:
        reply = await self._call("POST", "/query", json={"query": statement})
        rows: list[dict[str, Any]] = reply["rows"]
        return rows

    async def _call(self, method: str, path: str, *, json: Any = None, missing: tuple[int, ...] = ()) -> Any:
        import httpx2

        try:
            async with httpx2.AsyncClient(timeout=REPLY_S, trust_env=False) as client:
                reply = await client.request(
                    method, f"{self._url}{path}", json=json, headers={"accept": "application/json"}
                )
        except httpx2.HTTPError as error:
            why = f"{type(error).__name__} {error}".strip()
            raise DispatchError(f"the engine's admin API at {self._url} does not answer: {why}") from None
        if reply.is_success:
            return reply.json() if reply.content else None
        if reply.status_code in missing:
            return None
        raise DispatchError(f"the engine refuses {method} {path}: {reply.status_code} {_words(reply)}")


def _words(reply: httpx2.Response) -> str:
    try:
        return str(reply.json()["message"])
    except (ValueError, KeyError, TypeError):
        return reply.text[:500]
