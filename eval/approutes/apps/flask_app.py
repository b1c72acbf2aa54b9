"""Routes of Flask in most of their shapes. `python flask_app.py` answers lines "METHOD /target" by who serves them."""
import sys

from flask import Blueprint, Flask

app = Flask(__name__)
items = Blueprint("items", __name__, url_prefix="/v1/items")


def add(to, rule, *methods):
    name = (to.url_prefix if to is items else "") + rule
    to.add_url_rule(rule, f"r{len(rule)}{abs(hash(rule))}", lambda **_: name, methods=list(methods) or ["GET"])


for rule in ["", "/<int:id>", "/<slug>", "/search", "/<id>/parts/<part>", "/<any(new, old):which>/x", "/<float:price>/y",
             "/<string(length=2):code>/z"]:
    add(items, rule)
add(items, "/<uuid:id>", "DELETE", "PUT")
app.register_blueprint(items)
add(app, "/files/<path:path>")
add(app, "/files/<path:path>/edit")
add(app, "/folder/", "GET", "POST")
add(app, "/a-<x>.<y>")

if __name__ == "__main__":
    client = app.test_client()
    for line in sys.stdin:
        method, target = line.split()
        answer = client.open(target, method=method)
        print(answer.text if answer.status_code == 200 and method != "HEAD" else "-", flush=True)
