package admin

import "slices"

// Operation is an operation as tests see it.
type Operation struct {
	ID, Method, Path, Access string
	Query                    []string
	Changes                  bool
}

// Operations are those of the table.
func Operations() (all []Operation) {
	for _, op := range operations {
		all = append(all, Operation{op.id, op.method, op.path, string(op.access), slices.Clone(op.query), op.changes})
	}
	return all
}
