"""Flask, as its guide has it: decorators, request.args and request.form."""
from urllib.parse import quote

from flask import Flask, Response, request

app = Flask(__name__)


def served(route, user=""):
    return Response("ok", headers={"X-Route": route, "X-Id": request.headers.get("X-Id", ""),
                                   "X-Method": request.method, "X-User": quote(user, safe="", errors="replace")})


@app.get("/v1/items")
def items(): return served("GET /v1/items")
@app.post("/v1/items")
def add(): return served("POST /v1/items")
@app.get("/v1/items/search")
def search(): return served("GET /v1/items/search")
@app.get("/v1/items/<id>")
def item(id): return served("GET /v1/items/{id}")
@app.get("/v1/items/<id>/parts/<part>")
def part(id, part): return served("GET /v1/items/{id}/parts/{part}")
@app.get("/v1/admin/users")
def users(): return served("GET /v1/admin/users")
@app.get("/v1/admin/users/<id>")
def user(id): return served("GET /v1/admin/users/{id}")
@app.get("/v1/exports")
def exports(): return served("GET /v1/exports")
@app.get("/v1/getThing")
def thing(): return served("GET /v1/getThing")
@app.get("/public/<path:path>")
def public(path): return served("GET /public/{path...}")
@app.get("/rpc")
def rpc(): return served("GET /rpc?action=login" if request.args.get("action") == "login" else "GET /rpc")
@app.post("/login")
def login(): return served("POST /login", request.form.get("user", ""))
