//go:build !unix

package main

func outliveFileSize() {}
