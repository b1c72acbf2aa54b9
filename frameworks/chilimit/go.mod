module github.com/headgate-io/headgate/frameworks/chilimit

go 1.25.0

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/headgate-io/headgate v0.0.0-00010101000000-000000000000
)

replace github.com/headgate-io/headgate => ../..
