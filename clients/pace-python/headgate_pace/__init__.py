"""Paces requests to rate-limited APIs: transports for httpx and requests that wait their turn.

``headgate_pace.httpx`` has Transport and AsyncTransport, ``headgate_pace.requests`` has Adapter.
"""

from .algorithms import AATB, AP, ATB, HATB, UB, WB, XATB, Algorithm, Auto
from .hints import Hint
from .line import Attempt, Options, Throttled
from .telemetry import Telemetry

__all__ = ["AATB", "AP", "ATB", "Algorithm", "Attempt", "Auto", "HATB", "Hint", "Options", "Telemetry", "Throttled", "UB", "WB", "XATB"]
