from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from attrs import define as _attrs_define

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.question_header import QuestionHeader
    from ..models.user import User


T = TypeVar("T", bound="Question")


@_attrs_define
class Question:
    """
    Attributes:
        method (str):  Example: GET.
        target (str): As it stood in the request line, with its query and nothing decoded. Example: /v1/items/7?full=1.
        client (str): The address at the other end of the connection that the request came by. If that is a trusted
            proxy,
            X-Forwarded-For in `header` says more.
             Example: 192.0.2.7.
        header (QuestionHeader | Unset): Fields of the request by name; credentials stand there. Example: {'X-Api-Key':
            ['hg_example']}.
        user (User | Unset): Who the program has logged in, by a session for one. Then no credential in `header` is
            looked at. Left out
            where nobody is.
        message (bool | Unset): A message on a WebSocket is asked about: then method is WS-SEND or WS-RECEIVE, and the
            rest is that of the request which opened it.
        identifier (str | Unset): What the request tries to be, such as the account of a login, for rules by identifier.
        cost (int | Unset): In tokens; 0 is what the endpoint costs.
        reserve (int | Unset): Makes the cost an estimate, which /v1/settle corrects within so many seconds, or it
            stands. 0 charges the cost
            for good.
    """

    method: str
    target: str
    client: str
    header: QuestionHeader | Unset = UNSET
    user: User | Unset = UNSET
    message: bool | Unset = UNSET
    identifier: str | Unset = UNSET
    cost: int | Unset = UNSET
    reserve: int | Unset = UNSET

    def to_dict(self) -> dict[str, Any]:
        method = self.method

        target = self.target

        client = self.client

        header: dict[str, Any] | Unset = UNSET
        if not isinstance(self.header, Unset):
            header = self.header.to_dict()

        user: dict[str, Any] | Unset = UNSET
        if not isinstance(self.user, Unset):
            user = self.user.to_dict()

        message = self.message

        identifier = self.identifier

        cost = self.cost

        reserve = self.reserve

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "method": method,
                "target": target,
                "client": client,
            }
        )
        if header is not UNSET:
            field_dict["header"] = header
        if user is not UNSET:
            field_dict["user"] = user
        if message is not UNSET:
            field_dict["message"] = message
        if identifier is not UNSET:
            field_dict["identifier"] = identifier
        if cost is not UNSET:
            field_dict["cost"] = cost
        if reserve is not UNSET:
            field_dict["reserve"] = reserve

        return field_dict

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        from ..models.question_header import QuestionHeader
        from ..models.user import User

        d = dict(src_dict)
        method = d.pop("method")

        target = d.pop("target")

        client = d.pop("client")

        _header = d.pop("header", UNSET)
        header: QuestionHeader | Unset
        if isinstance(_header, Unset):
            header = UNSET
        else:
            header = QuestionHeader.from_dict(_header)

        _user = d.pop("user", UNSET)
        user: User | Unset
        if isinstance(_user, Unset):
            user = UNSET
        else:
            user = User.from_dict(_user)

        message = d.pop("message", UNSET)

        identifier = d.pop("identifier", UNSET)

        cost = d.pop("cost", UNSET)

        reserve = d.pop("reserve", UNSET)

        question = cls(
            method=method,
            target=target,
            client=client,
            header=header,
            user=user,
            message=message,
            identifier=identifier,
            cost=cost,
            reserve=reserve,
        )

        return question
