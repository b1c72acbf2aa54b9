from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeVar

from attrs import define as _attrs_define

from ..types import UNSET, Unset

T = TypeVar("T", bound="User")


@_attrs_define
class User:
    """Who the program has logged in, by a session for one. Then no credential in `header` is looked at. Left out
    where nobody is.

        Attributes:
            id (str): The stable name of an account, never a credential.
            project (str | Unset):
    """

    id: str
    project: str | Unset = UNSET

    def to_dict(self) -> dict[str, Any]:
        id = self.id

        project = self.project

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "id": id,
            }
        )
        if project is not UNSET:
            field_dict["project"] = project

        return field_dict

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        d = dict(src_dict)
        id = d.pop("id")

        project = d.pop("project", UNSET)

        user = cls(
            id=id,
            project=project,
        )

        return user
