//go:build !unix

package hold

// Descriptors returns a number that every system of this kind can do.
func Descriptors() int { return defaultDescriptors }
