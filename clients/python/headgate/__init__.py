"""Asks Headgate whether requests may pass.

ASGIMiddleware and WSGIMiddleware stand before an application; AsyncClient and Client ask from
anywhere. What is decided while Headgate cannot be asked is a fallback: deny, allow or Local.
"""

from .asgi import ASGIMiddleware
from .client import AsyncClient, Client, Decision, Unavailable, User
from .fallback import Local, allow, deny
from .wsgi import WSGIMiddleware

__all__ = [
    "ASGIMiddleware",
    "AsyncClient",
    "Client",
    "Decision",
    "Local",
    "Unavailable",
    "User",
    "WSGIMiddleware",
    "allow",
    "deny",
]
