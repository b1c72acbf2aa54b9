// Package approutes holds the endpoints that package framework makes of what applications report against the
// applications themselves: FastAPI, Express 4 and 5, Django, Flask, Rails and Spring run, and say who serves a request.
package approutes
