from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.settled_status import SettledStatus
from ..types import UNSET, Unset

T = TypeVar("T", bound="Settled")


@_attrs_define
class Settled:
    """
    Attributes:
        status (SettledStatus): `reservation_expired` came too late, and the estimate stands. `no_reservation` is none
            that this process knows.
        reserved (int): Tokens that were held.
        actual (int): Tokens that were spent in the end.
        uncharged (int | Unset): Tokens above the estimate that some bucket did not take on.
    """

    status: SettledStatus
    reserved: int
    actual: int
    uncharged: int | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        status = self.status.value

        reserved = self.reserved

        actual = self.actual

        uncharged = self.uncharged

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "status": status,
                "reserved": reserved,
                "actual": actual,
            }
        )
        if uncharged is not UNSET:
            field_dict["uncharged"] = uncharged

        return field_dict

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        d = dict(src_dict)
        status = SettledStatus(d.pop("status"))

        reserved = d.pop("reserved")

        actual = d.pop("actual")

        uncharged = d.pop("uncharged", UNSET)

        settled = cls(
            status=status,
            reserved=reserved,
            actual=actual,
            uncharged=uncharged,
        )

        settled.additional_properties = d
        return settled

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
