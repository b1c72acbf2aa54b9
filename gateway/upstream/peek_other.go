//go:build !unix

package upstream

const looks = false

func (c *conn) look(uintptr) bool { return true }

func (c *conn) takeTurn(uintptr) bool { return true }
