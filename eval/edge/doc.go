// Package edge holds no code but tests: the modules of package wasm decide as the library does,
// in wazero, in Node and in Envoy.
package edge
