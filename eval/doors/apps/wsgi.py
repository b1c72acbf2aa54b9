"""An application for WSGI that asks Headgate. A field stands for its session."""

import os

import headgate
from flask import Flask

url, timeout = os.environ["HEADGATE"], float(os.environ["TIMEOUT"])
fallback = {"deny": headgate.deny, "allow": headgate.allow, "local": headgate.Local(2, per=3600)}[os.environ["FALLBACK"]]


def who(environ):
    name = environ.get("HTTP_SESSION")
    return headgate.User(name) if name else None


# begin: wsgi
app = Flask(__name__)
app.wsgi_app = headgate.WSGIMiddleware(app.wsgi_app, url, user=who, fallback=fallback, timeout=timeout)
# end: wsgi


@app.get("/v1/items/<id>")
def item(id):
    return "served " + id
