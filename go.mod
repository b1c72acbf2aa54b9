module github.com/headgate-io/headgate

go 1.25.0
