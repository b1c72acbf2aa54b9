from enum import StrEnum


class SettledStatus(StrEnum):
    ALREADY_SETTLED = "already_settled"
    NOTHING_RESERVED = "nothing_reserved"
    NO_RESERVATION = "no_reservation"
    RESERVATION_EXPIRED = "reservation_expired"
    SETTLED = "settled"

    def __str__(self) -> str:
        return str(self.value)
