module github.com/headgate-io/headgate/eval

go 1.25.0

replace github.com/headgate-io/headgate => ../

tool honnef.co/go/tools/cmd/staticcheck

require github.com/headgate-io/headgate v0.0.0-00010101000000-000000000000

require (
	github.com/BurntSushi/toml v1.4.1-0.20240526193622-a339e1f7089c // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	golang.org/x/exp/typeparams v0.0.0-20231108232855-2478ac86f678 // indirect
	golang.org/x/mod v0.37.0 // indirect
	golang.org/x/sync v0.21.0 // indirect
	golang.org/x/tools v0.47.0 // indirect
	honnef.co/go/tools v0.7.0 // indirect
)
