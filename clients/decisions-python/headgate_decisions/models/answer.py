from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.answer_header import AnswerHeader
    from ..models.problem import Problem


T = TypeVar("T", bound="Answer")


@_attrs_define
class Answer:
    """
    Attributes:
        allowed (bool):
        status (int): To answer the client with; 200 where the request may pass. Example: 429.
        reason (str):  Example: over_limit.
        endpoint (str | Unset): The template, or UNKNOWN. Example: GET /v1/items/{id}.
        cost (int | Unset): In tokens.
        rule (str | Unset): The one that came closest to refusing, or did.
        remaining (int | Unset): Tokens left, by that rule.
        retry_after (float | Unset): Seconds until the same request succeeds.
        reset_after (float | Unset): Seconds until the bucket is full.
        reservation (str | Unset): What /v1/settle asks for. Whoever knows it can settle.
        expires (datetime.datetime | Unset): When the estimate stands.
        header (AnswerHeader | Unset): Fields for the client's answer.
        problem (Problem | Unset): Problem details (RFC 9457).
        body (str | Unset): The body for the client's answer in the place of `problem`, where a rule has its own. Its
            type is the Content-Type of `header`.
    """

    allowed: bool
    status: int
    reason: str
    endpoint: str | Unset = UNSET
    cost: int | Unset = UNSET
    rule: str | Unset = UNSET
    remaining: int | Unset = UNSET
    retry_after: float | Unset = UNSET
    reset_after: float | Unset = UNSET
    reservation: str | Unset = UNSET
    expires: datetime.datetime | Unset = UNSET
    header: AnswerHeader | Unset = UNSET
    problem: Problem | Unset = UNSET
    body: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        allowed = self.allowed

        status = self.status

        reason = self.reason

        endpoint = self.endpoint

        cost = self.cost

        rule = self.rule

        remaining = self.remaining

        retry_after = self.retry_after

        reset_after = self.reset_after

        reservation = self.reservation

        expires: str | Unset = UNSET
        if not isinstance(self.expires, Unset):
            expires = self.expires.isoformat()

        header: dict[str, Any] | Unset = UNSET
        if not isinstance(self.header, Unset):
            header = self.header.to_dict()

        problem: dict[str, Any] | Unset = UNSET
        if not isinstance(self.problem, Unset):
            problem = self.problem.to_dict()

        body = self.body

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "allowed": allowed,
                "status": status,
                "reason": reason,
            }
        )
        if endpoint is not UNSET:
            field_dict["endpoint"] = endpoint
        if cost is not UNSET:
            field_dict["cost"] = cost
        if rule is not UNSET:
            field_dict["rule"] = rule
        if remaining is not UNSET:
            field_dict["remaining"] = remaining
        if retry_after is not UNSET:
            field_dict["retry_after"] = retry_after
        if reset_after is not UNSET:
            field_dict["reset_after"] = reset_after
        if reservation is not UNSET:
            field_dict["reservation"] = reservation
        if expires is not UNSET:
            field_dict["expires"] = expires
        if header is not UNSET:
            field_dict["header"] = header
        if problem is not UNSET:
            field_dict["problem"] = problem
        if body is not UNSET:
            field_dict["body"] = body

        return field_dict

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        from ..models.answer_header import AnswerHeader
        from ..models.problem import Problem

        d = dict(src_dict)
        allowed = d.pop("allowed")

        status = d.pop("status")

        reason = d.pop("reason")

        endpoint = d.pop("endpoint", UNSET)

        cost = d.pop("cost", UNSET)

        rule = d.pop("rule", UNSET)

        remaining = d.pop("remaining", UNSET)

        retry_after = d.pop("retry_after", UNSET)

        reset_after = d.pop("reset_after", UNSET)

        reservation = d.pop("reservation", UNSET)

        _expires = d.pop("expires", UNSET)
        expires: datetime.datetime | Unset
        if isinstance(_expires, Unset):
            expires = UNSET
        else:
            expires = datetime.datetime.fromisoformat(_expires)

        _header = d.pop("header", UNSET)
        header: AnswerHeader | Unset
        if isinstance(_header, Unset):
            header = UNSET
        else:
            header = AnswerHeader.from_dict(_header)

        _problem = d.pop("problem", UNSET)
        problem: Problem | Unset
        if isinstance(_problem, Unset):
            problem = UNSET
        else:
            problem = Problem.from_dict(_problem)

        body = d.pop("body", UNSET)

        answer = cls(
            allowed=allowed,
            status=status,
            reason=reason,
            endpoint=endpoint,
            cost=cost,
            rule=rule,
            remaining=remaining,
            retry_after=retry_after,
            reset_after=reset_after,
            reservation=reservation,
            expires=expires,
            header=header,
            problem=problem,
            body=body,
        )

        answer.additional_properties = d
        return answer

    @property
    def additional_keys(self) -> list[str]:
        return list(self.additional_properties.keys())

    def __getitem__(self, key: str) -> Any:
        return self.additional_properties[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.additional_properties[key] = value

    def __delitem__(self, key: str) -> None:
        del self.additional_properties[key]

    def __contains__(self, key: str) -> bool:
        return key in self.additional_properties
