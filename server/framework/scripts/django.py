# Prints the routes of a Django project, a line of JSON each: python - mysite.settings
import json
import os
import sys

out, sys.stdout = sys.stdout, sys.stderr  # what the project prints goes elsewhere
sys.path.insert(0, "")
if len(sys.argv) > 1:
    os.environ["DJANGO_SETTINGS_MODULE"] = sys.argv[1]
import django  # noqa: E402

django.setup()
from django.conf import settings  # noqa: E402
from django.urls import get_resolver  # noqa: E402
from django.urls.resolvers import LocalePrefixPattern, RegexPattern  # noqa: E402


def methods(view):
    """Those that a view says it has: viewsets of REST framework, and views that are classes."""
    if getattr(view, "actions", None):
        return [m.upper() for m in view.actions]
    cls = getattr(view, "view_class", None) or getattr(view, "cls", None)
    return [m.upper() for m in cls.http_method_names if hasattr(cls, m) and m != "options"] if cls else []


def piece(pattern):
    if isinstance(pattern, LocalePrefixPattern):
        languages = "(?P<language>" + "|".join(code for code, _ in settings.LANGUAGES) + ")/"
        return {"regex": languages if pattern.prefix_default_language else "(?:" + languages + ")?"}
    if isinstance(pattern, RegexPattern):
        return {"regex": str(pattern._regex)}
    return {"text": str(pattern._route), "where": {n: c.regex for n, c in pattern.converters.items()}}


def walk(patterns, before):
    for pattern in patterns:
        path = before + [piece(pattern.pattern)]
        if hasattr(pattern, "url_patterns"):
            walk(pattern.url_patterns, path)
        else:
            print(json.dumps({"framework": "django", "methods": methods(pattern.callback), "path": path}), file=out)


walk(get_resolver().url_patterns, [{"text": "/"}])
