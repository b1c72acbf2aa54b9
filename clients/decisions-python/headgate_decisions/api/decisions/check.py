from http import HTTPStatus
from typing import Any

import httpx

from ...client import AuthenticatedClient, Client
from ...models.answer import Answer
from ...models.answers import Answers
from ...models.problem import Problem
from ...models.question import Question
from ...models.questions import Questions
from ...types import UNSET, Response, Unset


def _get_kwargs(
    *,
    body: Question | Questions,
    idempotency_key: str | Unset = UNSET,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if not isinstance(idempotency_key, Unset):
        headers["Idempotency-Key"] = idempotency_key

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/v1/check",
    }

    if isinstance(body, Question):
        _kwargs["json"] = body.to_dict()
    else:
        _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Answer | Answers | Problem:
    if response.status_code == 200:

        def _parse_response_200(data: object) -> Answer | Answers:
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                componentsschemas_check_result_type_0 = Answer.from_dict(data)

                return componentsschemas_check_result_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            if not isinstance(data, dict):
                raise TypeError()
            componentsschemas_check_result_type_1 = Answers.from_dict(data)

            return componentsschemas_check_result_type_1

        response_200 = _parse_response_200(response.json())

        return response_200

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> Response[Answer | Answers | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient | Client,
    body: Question | Questions,
    idempotency_key: str | Unset = UNSET,
) -> Response[Answer | Answers | Problem]:
    """Whether requests may pass

     About one request, or about several, which are decided one after the other. Each is charged when it
    is asked about.

    Args:
        idempotency_key (str | Unset):
        body (Question | Questions):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Answer | Answers | Problem]
    """

    kwargs = _get_kwargs(
        body=body,
        idempotency_key=idempotency_key,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    *,
    client: AuthenticatedClient | Client,
    body: Question | Questions,
    idempotency_key: str | Unset = UNSET,
) -> Answer | Answers | Problem | None:
    """Whether requests may pass

     About one request, or about several, which are decided one after the other. Each is charged when it
    is asked about.

    Args:
        idempotency_key (str | Unset):
        body (Question | Questions):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Answer | Answers | Problem
    """

    return sync_detailed(
        client=client,
        body=body,
        idempotency_key=idempotency_key,
    ).parsed


async def asyncio_detailed(
    *,
    client: AuthenticatedClient | Client,
    body: Question | Questions,
    idempotency_key: str | Unset = UNSET,
) -> Response[Answer | Answers | Problem]:
    """Whether requests may pass

     About one request, or about several, which are decided one after the other. Each is charged when it
    is asked about.

    Args:
        idempotency_key (str | Unset):
        body (Question | Questions):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Answer | Answers | Problem]
    """

    kwargs = _get_kwargs(
        body=body,
        idempotency_key=idempotency_key,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    *,
    client: AuthenticatedClient | Client,
    body: Question | Questions,
    idempotency_key: str | Unset = UNSET,
) -> Answer | Answers | Problem | None:
    """Whether requests may pass

     About one request, or about several, which are decided one after the other. Each is charged when it
    is asked about.

    Args:
        idempotency_key (str | Unset):
        body (Question | Questions):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Answer | Answers | Problem
    """

    return (
        await asyncio_detailed(
            client=client,
            body=body,
            idempotency_key=idempotency_key,
        )
    ).parsed
