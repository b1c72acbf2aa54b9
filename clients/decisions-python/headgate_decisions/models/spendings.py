from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from attrs import define as _attrs_define

if TYPE_CHECKING:
    from ..models.spent import Spent


T = TypeVar("T", bound="Spendings")


@_attrs_define
class Spendings:
    """
    Attributes:
        settlements (list[Spent]):
    """

    settlements: list[Spent]

    def to_dict(self) -> dict[str, Any]:
        settlements = []
        for settlements_item_data in self.settlements:
            settlements_item = settlements_item_data.to_dict()
            settlements.append(settlements_item)

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "settlements": settlements,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        from ..models.spent import Spent

        d = dict(src_dict)
        settlements = []
        _settlements = d.pop("settlements")
        for settlements_item_data in _settlements:
            settlements_item = Spent.from_dict(settlements_item_data)

            settlements.append(settlements_item)

        spendings = cls(
            settlements=settlements,
        )

        return spendings
