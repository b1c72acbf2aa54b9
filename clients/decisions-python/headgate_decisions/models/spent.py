from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeVar

from attrs import define as _attrs_define

from ..types import UNSET, Unset

T = TypeVar("T", bound="Spent")


@_attrs_define
class Spent:
    """
    Attributes:
        reservation (str): That of an answer.
        actual (int): What the request has cost, in tokens.
        forgive (bool | Unset): The rules of its endpoint turn out not to count it, as a login that succeeded where only
            failures count.
    """

    reservation: str
    actual: int
    forgive: bool | Unset = UNSET

    def to_dict(self) -> dict[str, Any]:
        reservation = self.reservation

        actual = self.actual

        forgive = self.forgive

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "reservation": reservation,
                "actual": actual,
            }
        )
        if forgive is not UNSET:
            field_dict["forgive"] = forgive

        return field_dict

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        d = dict(src_dict)
        reservation = d.pop("reservation")

        actual = d.pop("actual")

        forgive = d.pop("forgive", UNSET)

        spent = cls(
            reservation=reservation,
            actual=actual,
            forgive=forgive,
        )

        return spent
