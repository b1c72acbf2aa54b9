# Prints the routes of a FastAPI or Starlette application, a line of JSON each: python - main:app
import importlib
import json
import sys

out, sys.stdout = sys.stdout, sys.stderr  # what the application prints goes elsewhere
sys.path.insert(0, "")
module, _, name = sys.argv[1].partition(":")
app = importlib.import_module(module)
for part in (name or "app").split("."):
    app = getattr(app, part)


def put(path, **more):
    print(json.dumps({"framework": "starlette", "path": path, **more}), file=out)


def walk(routes, before):
    for route in routes:
        kind, text = type(route).__name__, getattr(route, "path", "")
        where = {n: c.regex for n, c in (getattr(route, "param_convertors", None) or {}).items()}
        path = before + [{"text": text, "where": where}]
        if hasattr(route, "effective_route_contexts"):  # a router that a newer FastAPI includes
            walk([c.starlette_route or c for c in route.effective_route_contexts()], before)
        elif getattr(route, "host", None) is not None:
            put(before + [{"text": route.host}], left="the routes of a host are not told apart")
        elif getattr(route, "endpoint", None) is not None:  # of a WebSocket too, which begins as a GET
            put(path, methods=sorted(getattr(route, "methods", None) or (["GET"] if "WebSocket" in kind else [])))
        elif getattr(route, "routes", None):
            walk(route.routes, path)
        elif getattr(route, "app", None) is not None:  # StaticFiles, or an application that tells no routes
            files = type(route.app).__name__ == "StaticFiles"
            put(path + [{"text": "/{path:path}", "where": {"path": ".*"}}], methods=["GET"] if files else [])
        else:
            put(path, left="a " + kind + " is not understood")


walk(app.routes, [])
if getattr(getattr(app, "router", None), "_low_priority_routes", None):
    put([{"text": "/"}], left="files of a frontend are no routes")
