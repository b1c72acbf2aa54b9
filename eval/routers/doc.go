// Package routers holds the templates of package pattern against the routers themselves: for generated requests,
// hostile ones among them, the handler that a router calls must be the one whose template is charged.
package routers
