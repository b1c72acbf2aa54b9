from http import HTTPStatus
from typing import Any

import httpx

from ...client import AuthenticatedClient, Client
from ...models.problem import Problem
from ...models.settled import Settled
from ...models.settlements import Settlements
from ...models.spendings import Spendings
from ...models.spent import Spent
from ...types import Response


def _get_kwargs(
    *,
    body: Spendings | Spent,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/v1/settle",
    }

    if isinstance(body, Spent):
        _kwargs["json"] = body.to_dict()
    else:
        _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> Problem | Settled | Settlements:
    if response.status_code == 200:

        def _parse_response_200(data: object) -> Settled | Settlements:
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                componentsschemas_settle_result_type_0 = Settled.from_dict(data)

                return componentsschemas_settle_result_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            if not isinstance(data, dict):
                raise TypeError()
            componentsschemas_settle_result_type_1 = Settlements.from_dict(data)

            return componentsschemas_settle_result_type_1

        response_200 = _parse_response_200(response.json())

        return response_200

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> Response[Problem | Settled | Settlements]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient | Client,
    body: Spendings | Spent,
) -> Response[Problem | Settled | Settlements]:
    """What requests have cost that were reserved for

     A reservation is settled once, by the process that made it. To say it again changes nothing, so
    whoever does not know
    whether it was heard says it again.

    Args:
        body (Spendings | Spent):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | Settled | Settlements]
    """

    kwargs = _get_kwargs(
        body=body,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    *,
    client: AuthenticatedClient | Client,
    body: Spendings | Spent,
) -> Problem | Settled | Settlements | None:
    """What requests have cost that were reserved for

     A reservation is settled once, by the process that made it. To say it again changes nothing, so
    whoever does not know
    whether it was heard says it again.

    Args:
        body (Spendings | Spent):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | Settled | Settlements
    """

    return sync_detailed(
        client=client,
        body=body,
    ).parsed


async def asyncio_detailed(
    *,
    client: AuthenticatedClient | Client,
    body: Spendings | Spent,
) -> Response[Problem | Settled | Settlements]:
    """What requests have cost that were reserved for

     A reservation is settled once, by the process that made it. To say it again changes nothing, so
    whoever does not know
    whether it was heard says it again.

    Args:
        body (Spendings | Spent):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | Settled | Settlements]
    """

    kwargs = _get_kwargs(
        body=body,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    *,
    client: AuthenticatedClient | Client,
    body: Spendings | Spent,
) -> Problem | Settled | Settlements | None:
    """What requests have cost that were reserved for

     A reservation is settled once, by the process that made it. To say it again changes nothing, so
    whoever does not know
    whether it was heard says it again.

    Args:
        body (Spendings | Spent):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | Settled | Settlements
    """

    return (
        await asyncio_detailed(
            client=client,
            body=body,
        )
    ).parsed
