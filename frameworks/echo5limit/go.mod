module github.com/headgate-io/headgate/frameworks/echo5limit

go 1.26.0

require (
	github.com/headgate-io/headgate v0.0.0-00010101000000-000000000000
	github.com/labstack/echo/v5 v5.4.4
)

replace github.com/headgate-io/headgate => ../..
